"""Tasks that are due later than `sqs_heartbeat_hold_eta`: their messages wait at SQS."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.orders import MODULE, leases, wait_for_no_lease
from tests.acceptance.record import CHANGE, extensions, receives, timeouts_asked
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
#: Tasks that are due later than this, in seconds, are parked.
HOLD = {"imports": [MODULE], "sqs_heartbeat_hold_eta": 2}
COUNTDOWN = 20


def send_parked(scene: Scene, *keys: str) -> tuple[float, float]:
    """Send tasks, and return the earliest and the latest time at which they may be due."""
    before = time.monotonic()
    for key in keys:
        scene.send("work", key, countdown=COUNTDOWN)
    return before + COUNTDOWN, time.monotonic() + COUNTDOWN


def wait_until_parked(scene: Scene, count: int = 1) -> None:
    """Return once so many messages are hidden for longer than they are held."""
    scene.wait_until(lambda: len(parked_for(scene)) >= count)


def parked_for(scene: Scene) -> list[int]:
    """Return for how many seconds messages were parked."""
    return [each for each in timeouts_asked(scene) if 2 <= each <= COUNTDOWN]


def answered_polls(scene: Scene, *, has_messages: bool) -> list[tuple[float, float]]:
    """Return when polls with messages, or those without, began and were answered."""
    return [
        (call.started_at, call.answered_at)
        for call in scene.calls("ReceiveMessage")
        if call.answered_at is not None
        if bool((call.answer or {}).get("Messages")) is has_messages
    ]


def late_polls(scene: Scene) -> list[tuple[float, float]]:
    """Return the empty polls that began when all parked messages were visible again."""
    visible = max(
        call.answered_at + entry["VisibilityTimeout"]
        for call in scene.calls(CHANGE)
        if call.answered_at is not None
        for entry in call.entries
        if entry["VisibilityTimeout"] <= COUNTDOWN
    )
    received = max(answered for _, answered in answered_polls(scene, has_messages=True))
    empty = answered_polls(scene, has_messages=False)
    return [(began, ended) for began, ended in empty if began > visible and ended < received]


def assert_in_time(scene: Scene, due: tuple[float, float]) -> None:
    """Check that no task started before its time, and that the first poll after it received it.

    A release that is sent late parks its message for that much longer.
    """
    earliest, latest = due
    assert all(note.at > earliest - 0.1 for note in scene.notes("start"))
    first_received = min(answered for _, answered in answered_polls(scene, has_messages=True))
    assert all(each <= latest - first_received for each in parked_for(scene))
    assert late_polls(scene) == []


def test_a_parked_task_is_not_held_and_starts_within_one_poll_of_its_time(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", conf=HOLD)
    due = send_parked(scene, "a")
    wait_until_parked(scene)
    wait_for_no_lease(scene)
    assert scene.counts() == (0, 1)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]
    assert len(receives(scene)) == 2
    assert_in_time(scene, due)


def test_parked_tasks_of_a_killed_worker_start_on_another_in_time(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    keys = ["a", "b", "c"]
    first = scene.worker("-c", "1", conf=HOLD)
    due = send_parked(scene, *keys)
    wait_until_parked(scene, len(keys))
    wait_for_no_lease(scene)
    first.kill("SIGKILL")
    first.wait_for_exit()
    scene.worker("-c", "1", conf=HOLD)
    scene.wait_for_notes("end", len(keys))
    scene.wait_until_empty()
    assert scene.keys("start") == keys
    # The poll of the killed worker receives none of them: it ends before they are due.
    assert_in_time(scene, due)


@pytest.mark.parametrize(
    ("queue", "options"),
    [
        pytest.param({"is_fifo": True}, {"MessageGroupId": "g"}, id="FIFO"),
        pytest.param({"max_receive_count": 2}, {}, id="too few receives"),
    ],
)
def test_a_task_that_can_not_be_parked_is_held(
    new_scene: NewScene, queue: dict[str, Any], options: dict[str, str]
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "20"}, **queue)
    scene.worker("-c", "1", conf={**HOLD, "sqs_heartbeat_threshold": 18})
    scene.send("work", "a", countdown=COUNTDOWN, **options)
    scene.wait_until(lambda: leases(scene) == 1)
    scene.wait_until(lambda: extensions(scene).total() > 0)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert len(receives(scene)) == 1
    assert scene.keys("start") == ["a"]


def test_each_task_of_a_queue_is_held_for_as_long_as_its_own_setting_says(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    conf = {"imports": [MODULE], "sqs_heartbeat_queues": {scene.name: {"hold_eta": 600}}}
    # A lease begins with its poll, and that may have begun before the message was sent.
    began = time.monotonic()
    worker = scene.worker("-c", "1", conf=conf)
    scene.send("work", "held", countdown=300)
    scene.send("unleased", "parked", countdown=900)
    scene.proxy.wait_for(CHANGE)
    scene.wait_until(lambda: leases(scene) == 1)
    # It was decided within this time, which is missing from all figures. They are rounded.
    took = time.monotonic() - began + 1
    # The other may be extended in the same call, for ten minutes.
    assert 900 - took < max(timeouts_asked(scene)) < 900
    assert scene.counts() == (0, 2)
    # It is not extended, and would be visible again then.
    worker.wait_for_log("may be held for")
    due, held = re.findall(r"is due in (\d+) s and may be held for (\d+) s", worker.logs())[0]
    assert 900 - took < int(due) <= 900
    assert 600 - took < int(held) <= 600
