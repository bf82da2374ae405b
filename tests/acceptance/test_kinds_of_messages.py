"""Every kind of message a worker meets leaves no lease behind, and none is lost.

The queues hide a message for minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery.utils.collections import LimitedSet
from celery.worker.state import Persistent

from tests.acceptance.record import receives, timeouts_asked
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
#: Known to the worker as revoked when it starts: a broadcast would not reach it.
REVOKED = ["revoked", "revoked with a countdown"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A task, and how often it starts and ends well. Its first argument is its task id."""

    task: str
    args: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    starts: int = 1
    ends: int = 1
    receives: int = 1


WORK: dict[str, Any] = {"task": "work"}
NEVER: dict[str, Any] = {"starts": 0, "ends": 0}
KINDS = {
    "early ack": Kind(task="early"),
    "late ack": Kind(**WORK),
    "fails, and is acked anyway": Kind(task="fail_and_ack", ends=0),
    "result stored": Kind(task="returns"),
    "result ignored": Kind(task="returns", options={"ignore_result": True}),
    "retried": Kind(task="step", args=("retried",), starts=2, receives=2),
    "out of retries": Kind(task="out_of_retries", ends=0),
    "revoked": Kind(**WORK, **NEVER),
    "revoked with a countdown": Kind(**WORK, **NEVER, options={"countdown": 0.5}),
    "expired": Kind(**WORK, **NEVER, options={"expires": -60}),
    "expires in its countdown": Kind(**WORK, **NEVER, options={"expires": 0.5, "countdown": 1}),
    "rate limit 1": Kind(task="limited"),
    "rate limit 2": Kind(task="limited"),
    "rate limit 3": Kind(task="limited"),
    "unknown task": Kind(task="nowhere", **NEVER),
}


def test_however_a_task_ends_its_message_is_deleted_and_its_lease_ends(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene = new_scene(attributes=LONG)
    results = tmp_path / "results"
    results.mkdir()
    revoke(tmp_path / "state.db", REVOKED)
    conf = {"result_backend": f"file://{results}"}
    arguments = ["-c", "2", "--statedb", str(tmp_path / "state.db")]
    worker = scene.worker(*arguments, orders=True, conf=conf)
    for key, kind in KINDS.items():
        scene.send(kind.task, key, *kind.args, task_id=key, **kind.options)
    scene.wait_until(lambda: len(receives(scene)) == sum(kind.receives for kind in KINDS.values()))
    scene.wait_until_empty()
    scene.wait_for_no_lease()
    # After an early ack, the task may still run.
    scene.wait_for_notes("start", len(expected(lambda kind: kind.starts)))
    scene.wait_for_notes("end", len(expected(lambda kind: kind.ends)))
    assert scene.keys("start") == expected(lambda kind: kind.starts)
    assert scene.keys("end") == expected(lambda kind: kind.ends)
    assert timeouts_asked(scene) == []
    stored = json.loads((results / "celery-task-meta-result stored").read_text())
    assert (stored["status"], stored["result"]) == ("SUCCESS", "result stored")
    assert not (results / "celery-task-meta-result ignored").exists()
    assert worker.process.exit_code is None


def expected(count: Callable[[Kind], int]) -> list[str]:
    return sorted(key for key, kind in KINDS.items() for _ in range(count(kind)))


def revoke(path: Path, task_ids: Sequence[str]) -> None:
    """Write the file of a worker's option --statedb."""
    revoked = LimitedSet()
    revoked.update(task_ids)
    state = SimpleNamespace(revoked=revoked, merge_revoked=revoked.update)
    Persistent(state, str(path)).save()


def test_no_lease_is_left_when_the_result_backend_is_down(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    down = {"result_backend": "tests.acceptance.proj:Down", "task_ignore_result": False}
    scene.worker("-c", "1", "-P", "threads", orders=True, conf=down)
    for task in ("returns", "fail_and_ack"):
        scene.send(task, task)
    scene.send("reject", "rejects", False)
    scene.wait_for_notes("start", 3)
    scene.wait_until_empty()
    scene.wait_for_no_lease()
    assert len(receives(scene)) == 3
