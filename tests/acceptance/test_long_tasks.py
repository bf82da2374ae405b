"""Tasks longer than the visibility timeout, or due later, run once, whatever fails or is late."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.acceptance.record import CHANGE, extensions, receives, timeouts_asked
from tests.acceptance.scene import EARLY, LONG, SHORT, Scene
from tests.support.faults import answer_late, fail, fail_entries

TASKS = [f"t{number:02}" for number in range(12)]
#: More than two timeouts of the queues.
SECONDS = 26
NewScene = Callable[..., Scene]


def test_twelve_long_tasks_run_once_each_and_without_the_flag_more_often(
    new_scene: NewScene,
) -> None:
    # Three queues at once: the tasks only sleep, and a minute is enough.
    prefork, threads = new_scene(attributes=SHORT), new_scene(attributes=SHORT)
    stock = new_scene()
    for scene in (prefork, threads, stock):
        for key in TASKS:
            scene.send("work", key, SECONDS)
    prefork.worker("-c", "6", "-P", "prefork", conf=EARLY)
    threads.worker("-c", "6", "-P", "threads", conf=EARLY)
    stock.worker("-c", "4", "-P", "prefork", flag=False)

    for scene in (prefork, threads):
        scene.wait_for_notes("end", len(TASKS), timeout=300)
        scene.wait_until_empty()
        assert scene.keys("start") == TASKS
        assert scene.keys("end") == TASKS
        assert scene.late_extensions() == []
    # Messages that are visible again wait behind those that the stock worker holds.
    stock.wait_until(lambda: len(stock.keys("start")) > len({*stock.keys("start")}))


def test_each_task_runs_once_although_calls_and_entries_fail(new_scene: NewScene) -> None:
    # Tries take longer on a busy machine: the threshold leaves time for many.
    scene = new_scene(attributes={"VisibilityTimeout": "15"})
    scene.proxy.rule(CHANGE, fail_entries(0.3, seed=1))
    scene.proxy.rule(CHANGE, fail(500, rate=0.3, seed=2))
    keys = TASKS[:6]
    for key in keys:
        scene.send("work", key, SECONDS)
    scene.worker("-c", "6", "-P", "threads", conf={"sqs_heartbeat_threshold": 13})
    scene.wait_for_notes("end", len(keys))
    scene.wait_until_empty()
    assert scene.keys("start") == keys
    answers = scene.proxy.calls(CHANGE)
    assert any(call.status == 500 for call in answers)
    assert any((call.answer or {}).get("Failed") for call in answers)
    assert scene.late_extensions() == []


def test_a_late_message_runs_only_after_an_extension_confirms_its_lease(
    new_scene: NewScene,
) -> None:
    # Nearly all of the visibility timeout: an answer that takes a second is a late one.
    scene = new_scene(attributes=SHORT)
    scene.proxy.rule("ReceiveMessage", answer_late(1.5))
    worker = scene.worker("-c", "1", conf={"sqs_heartbeat_threshold": 11.5})
    refuse = fail_entries(code="ReceiptHandleIsInvalid", sender_fault=True)
    granted = threading.Event()
    scene.proxy.rule(
        CHANGE,
        lambda body, forward: forward(body) if granted.is_set() else refuse(body, forward),
    )
    scene.send("work", "a")
    worker.wait_for_log("is not started: too little was left")
    granted.set()
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    (start,) = scene.notes("start")
    extended = [call for call in scene.calls(CHANGE) if (call.answer or {}).get("Successful")]
    assert extended[0].answered_at is not None
    assert extended[0].answered_at < start.at


POOLS = ["threads", "solo", "gevent", "eventlet", "prefork"]
#: Three timeouts of the queues.
BLOCKED_SECONDS = 36


def test_a_call_that_blocks_python_for_three_timeouts_loses_no_lease_in_any_pool(
    new_scene: Callable[..., Scene],
) -> None:
    # Side by side, as each takes its time.
    scenes = {pool: new_scene(attributes=SHORT) for pool in POOLS}
    workers = {
        pool: scene.worker("-c", "2", "-P", pool, conf=EARLY, wait=False)
        for pool, scene in scenes.items()
    }
    for worker in workers.values():
        worker.wait_for_log("ready.")
    # It receives nothing while a task runs.
    scenes["solo"].let_end("a")
    for scene in scenes.values():
        scene.send("hold_python", "a", BLOCKED_SECONDS)
        scene.send("work", "b")
    for pool in set(POOLS) - {"solo"}:
        # A poll's answer during the call is read too late, because that process polls.
        workers[pool].wait_for_log("Task tests.acceptance.proj.work[")
        scenes[pool].let_end("a")
    for pool, scene in scenes.items():
        scene.wait_for_notes("end", 2)
        scene.wait_until_empty()
        assert scene.keys("start") == ["a", "b"], pool
        assert len(receives(scene)) == 2, pool
        assert "lease-expired" not in workers[pool].logs(), pool


COUNTDOWN = 20


def test_a_message_is_extended_whatever_it_waits_for(new_scene: NewScene) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "20"})
    # Extended about every four seconds, with enough time left for a slow machine.
    conf = {"worker_prefetch_multiplier": 10, "sqs_heartbeat_threshold": 16}
    scene.worker("-c", "1", orders=True, conf=conf)
    scene.send("hold", "runs")
    scene.wait_for_notes("start", 1)
    scene.send("early", "early ack")
    scene.send("work", "late ack")
    scene.send("work", "countdown", countdown=1)
    scene.wait_until(lambda: scene.leases() == 4)
    before = extensions(scene)

    def twice(extended: Counter[str]) -> int:
        return sum(count >= 2 for count in extended.values())

    scene.wait_until(lambda: twice(extensions(scene) - before) >= 4)
    scene.let_end("runs")
    scene.wait_for_notes("end", 4)
    scene.wait_until_empty()
    scene.wait_for_no_lease()
    assert scene.keys("start") == ["countdown", "early ack", "late ack", "runs"]
    assert scene.late_extensions() == []


def test_a_task_that_is_due_later_is_not_held_and_starts_within_one_poll_of_its_time(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", orders=True, conf={"sqs_heartbeat_hold_eta": 2})
    sent_at = time.monotonic()
    scene.send("work", "a", countdown=COUNTDOWN)
    scene.wait_until(lambda: any(2 <= asked <= COUNTDOWN for asked in timeouts_asked(scene)))
    scene.wait_for_no_lease()
    assert scene.counts() == (0, 1)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    (start,) = scene.notes("start")
    assert start.at > sent_at + COUNTDOWN - 0.1
    # It was not extended while it waited at SQS. The first poll after that received it.
    assert len(receives(scene)) == 2
    released = next(call for call in scene.calls(CHANGE) if call.answered_at is not None)
    visible_at = (released.answered_at or 0.0) + released.entries[0]["VisibilityTimeout"]
    answers = [call for call in scene.calls("ReceiveMessage") if call.answered_at is not None]
    received_at = max(
        call.answered_at or 0.0 for call in answers if (call.answer or {}).get("Messages")
    )
    empty = [call for call in answers if not (call.answer or {}).get("Messages")]
    late = [each for each in empty if visible_at < each.started_at < received_at]
    assert [each for each in late if (each.answered_at or 0.0) < received_at] == []


def test_no_lease_expires_when_a_firewall_forgets_the_connections_of_a_keeper(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=SHORT)
    worker = scene.worker("-c", "1", "-P", "threads", conf={"sqs_heartbeat_threshold": 10})
    scene.send("hold", "a")

    def extensions() -> int:
        return sum(call.status == 200 for call in scene.calls(CHANGE))

    for count in (2, 4):
        # boto3 has made one of the two before, and has a connection of its own.
        scene.wait_until(lambda count=count: extensions() >= count)
        scene.proxy.forget_connections()
        scene.client.close()
    scene.wait_until(lambda: extensions() >= 6)
    assert scene.late_extensions() == []
    scene.let_end("a")
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]
    assert "lease-expired" not in worker.logs()
