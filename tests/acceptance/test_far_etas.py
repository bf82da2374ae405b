"""Tasks that are due later than a lease may last wait at SQS, not in the worker."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.record import CHANGE, timeouts_asked
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
HOUR = 3600


def test_a_task_that_is_due_later_is_released_until_then_and_runs_once(new_scene: NewScene) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "4"})
    scene.worker("-c", "1", conf={"sqs_heartbeat_max_lease": 4})
    scene.send("work", "a", countdown=25)
    released = scene.proxy.wait_for(CHANGE)[0]
    assert 4 < released.entries[0]["VisibilityTimeout"] <= 25
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]
    # Not extended while it waited at SQS. On a slow machine, it is extended after that.
    came_again = next(
        call.answered_at
        for call in scene.calls("ReceiveMessage")
        if call.started_at > released.started_at and (call.answer or {}).get("Messages")
    )
    assert came_again is not None
    meanwhile = [call for call in scene.calls(CHANGE) if call.started_at < came_again]
    assert [call.started_at for call in meanwhile] == [released.started_at]


def test_a_task_due_beyond_twelve_hours_is_released_for_as_long_as_sqs_allows_with_a_warning(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG, is_fifo=True)
    worker = scene.worker("-c", "1")
    for key in ("a", "b"):
        scene.send("work", key, countdown=30 * HOUR, MessageGroupId=key)
    # A late message is extended before it is released.
    scene.wait_until(lambda: sum(asked > 11.9 * HOUR for asked in timeouts_asked(scene)) == 2)
    assert max(timeouts_asked(scene)) <= 12 * HOUR
    worker.wait_for_log("needs 3 receives until then, and queue")
    assert worker.logs().count("SQS will move the message to the dead-letter queue") == 1


def test_a_task_due_beyond_twelve_hours_is_sent_again_instead_of_its_last_release(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=1, attributes=LONG)
    scene.worker("-c", "1")
    scene.send("work", "a", countdown=30 * HOUR)
    # SQS allows no longer delay. Then the message is received for the first time again.
    scene.wait_until(
        lambda: (
            [call.body.get("DelaySeconds") for call in scene.calls("SendMessage")] == [None, 900]
        )
    )
    scene.proxy.wait_for("DeleteMessageBatch")
    assert scene.counts(scene.dead_letters) == (0, 0)
