"""Tasks longer than the visibility timeout run once, also if calls fail or answers are late."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.acceptance.record import CHANGE
from tests.acceptance.scene import EARLY, SHORT, Scene
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


def test_a_countdown_longer_than_the_visibility_timeout_runs_once(new_scene: NewScene) -> None:
    scene = new_scene(attributes=SHORT)
    scene.worker("-c", "2", conf=EARLY)
    scene.send("work", "now")
    sent_after = scene.wait_for_notes("start", 1)[0].at
    for key in ("a", "b", "c"):
        scene.send("work", key, countdown=SECONDS)
    scene.wait_for_notes("end", 4)
    scene.wait_until_empty()
    starts = scene.notes("start")
    assert sorted(note.key for note in starts) == ["a", "b", "c", "now"]
    assert min(note.at for note in starts[1:]) - sent_after >= SECONDS - 1
    assert scene.late_extensions() == []


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
