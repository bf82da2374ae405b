"""Messages that arrive with too little of their visibility timeout left."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.record import CHANGE
from tests.acceptance.scene import Scene
from tests.support.faults import answer_late, fail_entries

NewScene = Callable[..., Scene]
RECEIVE = "ReceiveMessage"
#: Nearly all of the visibility timeout: an answer that takes a second is a late one.
QUEUE = {"VisibilityTimeout": "12"}
CONF = {"sqs_heartbeat_threshold": 11.5}
LATE = answer_late(1.5)


def test_a_late_message_runs_only_after_an_extension_confirms_its_lease(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=QUEUE)
    scene.proxy.rule(RECEIVE, LATE)
    worker = scene.worker("-c", "1", conf=CONF)
    scene.proxy.rule(CHANGE, fail_entries(code="ReceiptHandleIsInvalid", sender_fault=True))
    scene.send("work", "a")
    worker.wait_for_log("is not started: too little was left")
    scene.proxy.clear()
    scene.proxy.rule(RECEIVE, LATE)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    (start,) = scene.notes("start")
    granted = [call for call in scene.calls(CHANGE) if (call.answer or {}).get("Successful")]
    assert granted[0].answered_at is not None
    assert granted[0].answered_at < start.at
