"""What a task learns about its own lease, in the processes and threads that run it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import celery
import pytest

from tests.acceptance.scene import Scene
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
