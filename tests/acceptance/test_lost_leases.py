"""What happens to a task whose lease is lost, expires or is capped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.acceptance.record import handles
from tests.acceptance.scene import Scene
from tests.support.faults import fail_entries

NewScene = Callable[..., Scene]
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
