"""What a task learns of its lease, decides about its message, and suffers when the lease is lost.

Most queues hide a message for long. A message that is visible sooner was released.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import celery
import pytest

from tests.acceptance.record import assert_released_for, handles
from tests.acceptance.scene import LONG, Scene
from tests.support.faults import fail_entries
from tests.support.recording import CHANGE

NewScene = Callable[..., Scene]
#: How prefork starts its processes, which read their leases in shared memory. Celery has the
#: setting since 5.7.
METHODS: dict[str, dict[str, Any]] = {
    "fork": {},
    **({"spawn": {"worker_pool_start_method": "spawn"}} if celery.VERSION >= (5, 7) else {}),
}
#: Extended about every two seconds, with enough time left for a slow machine.
TIMEOUT, THRESHOLD = 30, 28


@pytest.mark.parametrize("method", METHODS)
def test_a_task_sees_its_lease_count_down_and_grow_with_every_extension_and_no_file_is_left(
    new_scene: NewScene, tmp_path: Path, method: str
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": str(TIMEOUT)})
    scene.send("watch", "a")
    # Received once before, so that the worker's receive is the second.
    again = {"QueueUrl": scene.url, "VisibilityTimeout": 0, "WaitTimeSeconds": 1}
    assert scene.client.receive_message(**again)["Messages"]
    conf = {"sqs_heartbeat_threshold": THRESHOLD, **METHODS[method]}
    worker = scene.worker("-c", "2", conf=conf, env={"TMPDIR": str(tmp_path)})

    def left() -> list[float]:
        return [float(note.key) for note in scene.notes("left")]

    scene.wait_until(lambda: sum(later > earlier for earlier, later in pairwise(left())) >= 2)
    # A cleaner of temporary files finds none, even while the task runs.
    assert not list(tmp_path.glob("celery-sqs-heartbeat-*"))
    scene.let_end("a")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert all(0 < seconds <= TIMEOUT for seconds in left())
    (about,) = scene.keys("message")
    (received,) = [
        message
        for call in scene.proxy.calls("ReceiveMessage")
        if call.body.get("VisibilityTimeout") != 0
        for message in (call.answer or {}).get("Messages", ())
    ]
    count = int(received["Attributes"]["ApproximateReceiveCount"])
    assert count == 2
    assert json.loads(about) == ["a", received["MessageId"], count]
    worker.kill(signal.SIGTERM)
    worker.wait_for_exit()
    assert not list(tmp_path.glob("celery-sqs-heartbeat-*"))


def test_a_task_whose_lease_is_lost_is_stopped_before_its_side_effect(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": str(TIMEOUT)})
    lost = fail_entries(code="ReceiptHandleIsInvalid", sender_fault=True)
    scene.proxy.rule(CHANGE, lost)
    scene.worker("-c", "2", conf={"sqs_heartbeat_threshold": THRESHOLD})
    scene.send("guard", "a", 30)
    (note,) = scene.wait_for_notes("lost", 1)
    reason, message_id, remaining = json.loads(note.key)
    assert "SQS says that it is no longer ours" in reason
    assert message_id in reason
    assert remaining == 0.0
    assert scene.proxy.calls(CHANGE)


#: What a worker logs if a busy machine stalls it or its keeper.
STALLS = ("the process did not run for", "the keeper is", "the keeper's process")


def test_a_task_that_releases_its_message_gets_it_after_the_delay_and_has_not_failed(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    worker = scene.worker("-c", "2")
    scene.send("release", "a", 1)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    first, second = (note.at for note in scene.notes("start"))
    assert second - first >= 1
    assert_released_for(scene, 1)
    log = worker.logs()
    assert log.count("released its message for 1 s") == 1
    # Neither a failure nor a retry, though the task has `autoretry_for=(Exception,)`.
    assert "Traceback" not in log
    lines = log.partition("ready.")[2].splitlines()
    assert [line for line in lines if "retry" in line] == []
    complaints = [line for line in lines if "WARNING/" in line or "ERROR/" in line]
    assert [line for line in complaints if not any(stall in line for stall in STALLS)] == []


@pytest.mark.parametrize("is_killed", [False, True], ids=["error", "killed"])
def test_the_delay_that_a_task_has_set_counts_for_its_later_error(
    new_scene: NewScene, is_killed: bool
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    scene.worker("-c", "2", conf={"sqs_heartbeat_release_delay": 599})
    scene.send("delay_and_fail", "a", 1, is_killed)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert_released_for(scene, 1)


def test_a_worker_without_the_flag_deletes_no_message_that_its_task_released(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=9, attributes=LONG)
    worker = scene.worker("-c", "1", flag=False)
    scene.send("release_anyway", "a")
    scene.wait_for_notes("start", 2)
    worker.wait_for_log("raised ReleaseMessage, whose delay has no effect here")
    assert "Traceback" not in worker.logs()
    assert scene.proxy.calls("DeleteMessage") == []
    assert scene.proxy.calls("DeleteMessageBatch") == []


CHANGES = ("ChangeMessageVisibility", "ChangeMessageVisibilityBatch")
STOLEN = fail_entries(code="ReceiptHandleIsInvalid", sender_fault=True)


def conf(**settings: Any) -> dict[str, Any]:
    return {f"sqs_heartbeat_{name}": value for name, value in settings.items()}


def deleted_handles(scene: Scene) -> set[str]:
    return {
        entry["ReceiptHandle"]
        for call in scene.proxy.calls("DeleteMessageBatch")
        for entry in call.entries
    }


def test_terminate_stops_the_task_and_leaves_its_message_to_its_next_owner(
    new_scene: NewScene,
) -> None:
    # Refused well before it expires, even on a slow machine.
    scene = new_scene(attributes={"VisibilityTimeout": "20"})
    # With one task at a time, no poll is open while it runs.
    rules = conf(on_lost="terminate", threshold=17)
    scene.worker("-c", "1", "--prefetch-multiplier", "1", conf=rules)
    scene.send("slow_once", "a", 200)
    scene.wait_for_notes("start", 1)
    scene.proxy.rule(CHANGES, STOLEN)
    scene.wait_for_notes("lease_lost", 1)
    scene.proxy.clear()
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a"]
    assert scene.keys("lease_lost") == ["slow_once lost"]
    _, second = handles(scene)
    assert deleted_handles(scene) == {second}


def test_with_a_lost_lease_a_waiting_task_is_not_started_and_a_running_one_continues(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "30"})
    # Extended every two seconds, so both are lost long before they are received again.
    room = ("-c", "1", "--prefetch-multiplier", "2")
    worker = scene.worker(*room, orders=True, conf=conf(threshold=28))
    scene.send("hold", "runs")
    scene.wait_for_notes("start", 1)
    scene.send("work", "waits")
    scene.wait_until(lambda: scene.leases() == 2)
    scene.proxy.rule(CHANGES, STOLEN)
    scene.wait_for_notes("lease_lost", 2)
    scene.proxy.clear()
    scene.let_end("runs")
    worker.wait_for_log("is not started: its lease is lost")
    scene.wait_until(lambda: "waits" in scene.keys("end"))
    scene.wait_until_empty()
    # The one that waited was received again before it ran.
    assert scene.keys("start").count("waits") == 1
    assert len(handles(scene)) >= 3
    assert scene.keys("lease_lost") == ["hold lost", "work lost"]
    assert "runs" in scene.keys("end")


def test_a_stuck_task_does_not_hold_its_message_indefinitely(new_scene: NewScene) -> None:
    # If it expired before its end, on a slow machine, it would be lost and not capped.
    scene = new_scene(attributes={"VisibilityTimeout": "20"})
    of_task = {"PROJ_SLOW_ONCE": json.dumps({"max_lease": 25, "on_lost": "terminate"})}
    worker = scene.worker("-c", "1", conf=conf(threshold=17), env=of_task)
    scene.send("slow_once", "a", 200)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a"]
    assert scene.keys("lease_capped") == ["slow_once capped"]
    assert worker.logs().count("lease-cap-near") == 1
