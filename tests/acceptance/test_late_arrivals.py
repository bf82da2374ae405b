"""Messages that arrive with too little of their visibility timeout left."""

from __future__ import annotations

import threading
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
