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

from tests.acceptance import kinds
from tests.acceptance.orders import MODULE, leases, wait_for_no_lease
from tests.acceptance.record import CHANGE, receives, timeouts_asked
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
CONF = {"imports": [MODULE, kinds.MODULE]}
#: Known to the worker as revoked when it starts: a broadcast would not reach it.
REVOKED = ["revoked", "revoked with a countdown"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A task, and how often it starts and ends well. Its first argument is its task id."""

    task: str
    module: str = kinds.MODULE
    options: dict[str, Any] = field(default_factory=dict)
    starts: int = 1
    ends: int = 1
    receives: int = 1


WORK: dict[str, Any] = {"task": "work", "module": "tests.acceptance.proj"}
NEVER: dict[str, Any] = {"starts": 0, "ends": 0}
KINDS = {
    "early ack": Kind(task="early"),
    "early ack, then fails": Kind(task="early_and_fails", ends=0),
    "late ack": Kind(**WORK),
    "fails, and is acked anyway": Kind(task="acked_though_it_fails", ends=0),
    "result stored": Kind(task="returns"),
    "result ignored": Kind(task="returns", options={"ignore_result": True}),
    "retried": Kind(task="retried_once", starts=2, receives=2),
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
    conf = {**CONF, "result_backend": f"file://{results}"}
    arguments = ["-c", "2", "--statedb", str(tmp_path / "state.db")]
    worker = scene.worker(*arguments, conf=conf)
    for key, kind in KINDS.items():
        send(scene, kind.task, key, kind.module, task_id=key, **kind.options)
    scene.wait_until(lambda: len(receives(scene)) == sum(kind.receives for kind in KINDS.values()))
    scene.wait_until_empty()
    wait_for_no_lease(scene)
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


def send(scene: Scene, task: str, key: str, module: str = kinds.MODULE, **options: Any) -> None:
    options = {"queue": scene.name, "routing_key": scene.name, **options}
    scene.app.send_task(f"{module}.{task}", [key], **options)


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
    down = {"result_backend": f"{kinds.MODULE}:Down", "task_ignore_result": False}
    scene.worker("-c", "1", "-P", "threads", conf={**CONF, **down})
    for task in ("returns", "acked_though_it_fails", "rejects", "retried_once"):
        send(scene, task, task)
    scene.wait_for_notes("start", 5)
    scene.wait_until_empty()
    wait_for_no_lease(scene)
    assert len(receives(scene)) == 5


def test_messages_of_a_queue_without_acks_are_never_leased(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    queue = {"exchange": scene.name, "routing_key": scene.name, "no_ack": True}
    scene.worker("-c", "1", "-P", "threads", conf={**CONF, "task_queues": {scene.name: queue}})
    scene.send("hold", "a")
    scene.send("work", "b")
    scene.wait_for_notes("start", 1)
    # Deleted when they were received: no message is left to hold while they run or wait.
    scene.wait_until(lambda: len(receives(scene)) == 2)
    scene.wait_until_empty()
    assert leases(scene) == 0
    scene.let_end("a")
    scene.wait_for_notes("end", 2)
    assert scene.keys("start") == ["a", "b"]
    assert leases(scene) == 0
    assert scene.calls(CHANGE) == scene.calls("DeleteMessageBatch") == []
