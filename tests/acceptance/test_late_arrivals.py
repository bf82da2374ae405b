"""Messages that arrive with too little left of their visibility timeout."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.scene import Scene
from tests.support.faults import answer_late, fail_entries

NewScene = Callable[..., Scene]
CHANGE = "ChangeMessageVisibilityBatch"
RECEIVE = "ReceiveMessage"
#: Nearly all of the visibility timeout: an answer that takes a second is a late one.
QUEUE = {"VisibilityTimeout": "12"}
CONF = {"sqs_heartbeat_threshold": 11.5}
LATE = answer_late(1.5)


def test_one_is_extended_before_it_is_run(new_scene: NewScene) -> None:
    scene = new_scene(attributes=QUEUE)
    scene.proxy.rule(RECEIVE, LATE)
    scene.worker("-c", "1", conf=CONF)
    scene.send("work", "a")
    start = scene.wait_for_notes("start", 1)[0]
    extension = scene.proxy.calls(CHANGE)[0]
    assert extension.answered_at is not None
    assert extension.answered_at < start.at
    scene.wait_until_empty()


def test_one_that_is_not_ours_any_more_is_not_run(new_scene: NewScene) -> None:
    scene = new_scene(attributes=QUEUE)
    scene.proxy.rule(RECEIVE, LATE)
    worker = scene.worker("-c", "1", conf=CONF)
    scene.proxy.rule(CHANGE, fail_entries(code="ReceiptHandleIsInvalid", sender_fault=True))
    scene.send("work", "a")
    worker.wait_for_log("is not started: too little was left")
    scene.proxy.clear()
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]
