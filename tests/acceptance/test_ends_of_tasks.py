"""However a task ends, its message is settled, its lease ends, and its slot is free.

The queues hide a message for minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.utils.collections import LimitedSet
from celery.worker.state import Persistent
from kombu import VERSION

from tests.acceptance import foreign
from tests.acceptance.processes import is_zombie, living
from tests.acceptance.proj import ENDS, GREEN_ENDS
from tests.acceptance.record import (
    CHANGE,
    DEAD_POLL,
    asked_of_releases,
    deleted,
    receives,
    timeouts_asked,
)
from tests.acceptance.scene import LONG, STEADY, Scene
from tests.support.faults import Answer, Body, Forward

#: A message that is rejected without requeue is deleted if its queue has no dead-letter queue.
#: Before, it stayed in flight until its visibility timeout ended (kombu 5.7, docs of the SQS
#: transport).
REJECT_DELETES = VERSION[:2] >= (5, 7)
NewScene = Callable[..., Scene]


def test_a_short_outage_of_what_tasks_depend_on_makes_no_dead_letters(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=5, attributes=LONG)
    keys = [f"{number:02}" for number in range(20)]
    for key in keys:
        scene.send("depend", key)
    scene.worker("-c", "2")
    failures = 2 * len(keys)

    def has_been_down_for_a_while() -> bool:
        # Released at once, the messages would fill every poll until all are dead letters.
        starts = scene.notes("start")
        return len(starts) >= failures and any(
            call.answered_at is not None
            and call.started_at > starts[failures - 1].at
            and not (call.answer or {}).get("Messages")
            for call in scene.calls("ReceiveMessage")
        )

    scene.wait_until(has_been_down_for_a_while)
    scene.let_end("dependency")
    dead = functools.partial(scene.counts, scene.dead_letters)
    scene.wait_until(lambda: len(scene.notes("end")) + sum(dead()) >= len(keys))
    assert scene.keys("end") == keys
    asked = asked_of_releases(scene)
    assert set(asked[1]) == {0}
    # A busy machine may make a release late, which then hides for the rest of the delay.
    assert max(asked[2]) <= 2
    assert min(gap for key in keys for gap in gaps(scene, key)[1:2]) >= 2


@pytest.mark.fresh
@pytest.mark.parametrize(("pool", "tool"), [("prefork", "Sentry"), ("threads", "OpenTelemetry")])
def test_in_an_instrumented_worker_messages_end_as_usual_and_each_error_is_reported(
    new_scene: NewScene, tmp_path: Path, pool: str, tool: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    errors = tmp_path / "errors"
    env = {"PROJ_INSTRUMENT": tool, "PROJ_REPORTED": str(errors)}
    scene.worker("-c", "2", "-P", pool, env=env)
    scene.send("work", "good")
    scene.send("fail", "bad")
    wait_for_dead_letters(scene, 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["bad", "bad", "good"]
    assert scene.keys("end") == ["good"]
    scene.wait_until(lambda: errors.exists() and errors.read_text().count("Error") == 2)
    lines = [line.split() for line in errors.read_text().splitlines() if "Error" in line]
    assert [(line[0].rpartition("/")[2], line[-1]) for line in lines] == [
        ("tests.acceptance.proj.fail", "ValueError")
    ] * 2


def test_any_end_that_leaves_its_message_in_the_queue_releases_it_at_once(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    # More processes than tasks: Celery is slow to notice a lost one and to replace it.
    scene.worker("-c", "4")
    scene.send("die", "its process is lost")
    scene.send("overrun", "hard time limit")
    scene.send("reject", "requeued", True)
    scene.wait_for_notes("end", 1)
    wait_for_dead_letters(scene, 2)
    scene.wait_until_empty()
    keys = ["hard time limit", "its process is lost", "requeued"]
    assert scene.keys("start") == sorted(2 * keys)
    assert scene.keys("end") == ["its process is lost"]
    # The call of a release may also extend other leases.
    assert set(timeouts_asked(scene)) - {int(LONG["VisibilityTimeout"])} == {0}


def wait_for_dead_letters(scene: Scene, count: int) -> None:
    """Return once so many messages are in the dead-letter queue."""
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == count)


def gaps(scene: Scene, key: str) -> list[float]:
    """Return the seconds from each start of a task to its next."""
    starts = [note.at for note in scene.notes("start") if note.key == key]
    return [later - sooner for sooner, later in pairwise(starts)]


def test_a_stock_worker_deletes_what_fails_if_the_queue_has_no_redrive_policy(
    new_scene: NewScene,
) -> None:
    # docs/motivation.md and docs/howto/stock-worker.md warn of it.
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", "-P", "threads", flag=False)
    scene.send("fail", "a")
    scene.wait_for_notes("start", 1)
    if REJECT_DELETES:
        scene.wait_until_empty()
    else:
        scene.send("work", "after it")
        scene.wait_for_notes("end", 1)
        assert scene.counts() == (0, 1)
    assert scene.keys("start")[0] == "a"
    assert scene.keys("start").count("a") == 1


#: One message for each process: a lost slot stops the worker.
ONE_EACH = {"worker_prefetch_multiplier": 1}
#: The green pools end tasks by the same code of Celery's as threads.
EVERYWHERE = [pytest.param(pool, marks=pytest.mark.versions) for pool in ("threads", "prefork")]


@pytest.mark.versions
@pytest.mark.parametrize("pool", [*EVERYWHERE, "gevent", "eventlet"])
def test_however_a_task_ends_its_message_is_settled_and_its_slot_is_free(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    worker = scene.worker("-c", "2", "-P", pool, conf=ONE_EACH)
    ends = sorted({**ENDS, **(GREEN_ENDS if pool in ("gevent", "eventlet") else {})})
    for end in ends:
        scene.send("end_by", end)
    if pool == "gevent":
        # Its hard time limit is a gevent.Timeout, which is Celery's own.
        scene.send("overrun", "overrun")
        ends.append("overrun")
    scene.send("end_and_ack", "acked", "exit")
    scene.send("end_and_ack", "acked too", "custom")
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == len(ends))
    for number in range(3):
        scene.send("work", f"good {number}")
    scene.wait_for_notes("end", 3)
    scene.wait_until_empty()
    assert scene.keys("start") == sorted(
        [*ends, *ends, "acked", "acked too", "good 0", "good 1", "good 2"]
    )
    assert "nothing will settle" not in worker.logs()


@pytest.mark.versions
def test_a_message_is_released_only_after_its_overdue_process_has_died(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    alive_at_releases: list[bool] = []

    def note_processes(body: Body, forward: Forward) -> Answer:
        if any(entry["VisibilityTimeout"] <= DEAD_POLL for entry in body["Entries"]):
            pids = [note.pid for note in scene.notes("start")]
            alive_at_releases.extend(pid in living(pids) and not is_zombie(pid) for pid in pids)
        return forward(body)

    scene.proxy.rule(CHANGE, note_processes)
    # As on a busy machine: longer than it takes to release a message.
    worker = scene.worker("-c", "1", env={"PROJ_KILL_LATE": "2"})
    scene.send("ignore_signals", "a", time_limit=2)
    scene.wait_until(lambda: alive_at_releases)
    assert alive_at_releases[0] is False
    assert "nothing will settle" not in worker.logs()
    scene.let_end("a")


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


CONF: dict[str, Any] = {
    "imports": [foreign.MODULE],
    "task_acks_on_failure_or_timeout": False,
}


def test_malformed_messages_become_dead_letters_and_all_others_run(new_scene: NewScene) -> None:
    scene = new_scene(attributes=STEADY, max_receive_count=2)
    worker = scene.worker("-c", "2", conf=CONF)

    def send(body: str) -> str:
        sent = scene.client.send_message(QueueUrl=scene.url, MessageBody=body)
        return str(sent["MessageId"])

    odd: dict[str, str] = {}
    good: set[str] = set()
    for number, body in enumerate(foreign.malformed()):
        odd[send(body)] = body[:1_000]
        if not number % 10:
            good.add(send(json.dumps(foreign.envelope())))
    # What Celery has rejected stays hidden until its visibility timeout ends.
    scene.wait_until_empty()
    runs, gone = {*scene.keys("run")}, deleted(scene)
    assert good <= gone & runs
    # Some run although something about them is odd. Nothing else is deleted.
    assert [odd[message_id] for message_id in gone - runs] == []
    dead = len(odd) + len(good) - len(gone)
    assert sum(scene.counts(scene.dead_letters)) == dead
    logged = Counter(re.findall(r"message (\S+) of \S+ can't be delivered", worker.logs()))
    assert logged <= Counter(receives(scene))
    worker.kill("SIGTERM")
    assert worker.wait_for_exit() == 0
