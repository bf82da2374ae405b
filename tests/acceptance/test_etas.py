"""Messages that wait in the worker are extended. If their task is due later, they wait at SQS."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from tests.acceptance.record import CHANGE, extensions, receives, timeouts_asked
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
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
