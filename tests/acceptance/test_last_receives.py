"""A message on its last receive whose task has not started does not become a dead letter.

SQS moves a message to the dead-letter queue when it is released after `maxReceiveCount` receives.
The queue's visibility timeout is long: nothing becomes visible again except by a release.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.record import make_visible, receives
from tests.acceptance.scene import LONG, Scene
from tests.support.waiting import PATIENCE

NewScene = Callable[..., Scene]

#: For the whole test, or not at all, the pool may start a task of a worker that ends.
PATIENT, AT_ONCE = {"PROJ_START_SECONDS": str(PATIENCE)}, {"PROJ_START_SECONDS": "0"}


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "FIFO"])
def test_a_warm_shutdown_runs_what_was_received_for_the_last_time(
    new_scene: NewScene, is_fifo: bool
) -> None:
    # A FIFO queue has no other way, so it needs no time.
    env = AT_ONCE if is_fifo else PATIENT
    scene = new_scene(max_receive_count=2, attributes=LONG, is_fifo=is_fifo)
    send_for_the_last_time(scene, "a", "b")
    worker = scene.worker("-c", "1", env=env)
    running = waiting_behind(scene)
    # These may still be received twice.
    scene.send("work", "c", **group(scene, "c"))
    scene.wait_until(lambda: len(receives(scene)) == 3)
    worker.kill("SIGTERM")
    scene.wait_until(lambda: scene.counts() == (1, 2))
    scene.let_end(running)
    scene.wait_for_notes("start", 2)
    for key in ("a", "b"):
        scene.let_end(key)
    assert worker.process.wait(PATIENCE) == 0
    assert scene.counts() == (1, 0)
    # Neither was sent again. "c" is, if the last poll reaches SQS so late that it receives it.
    assert len({call.body["MessageBody"] for call in scene.calls("SendMessage")}) == 1
    assert scene.keys("end") == scene.keys("start") == ["a", "b"]
    assert dead_letters(scene) == []


@pytest.mark.parametrize("end", ["shutdown", "lost-connection"])
def test_what_can_not_run_is_sent_again_and_runs_on_another_worker(
    new_scene: NewScene, end: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    attributes = {"tenant": {"DataType": "String", "StringValue": "ours"}}
    send_for_the_last_time(scene, "a", "b", message_attributes=attributes)
    worker = scene.worker("-c", "1", orders=True, env=AT_ONCE)
    running = waiting_behind(scene)
    (waiting,) = {"a", "b"} - {running}
    if end == "lost-connection":
        scene.order("lose_connection")
    else:
        worker.kill("SIGQUIT")
    # SQS has confirmed the new message, and then the delete of the old one.
    worker.wait_for_log("it was sent again as")
    if end == "lost-connection":
        scene.let_end(running)
    else:
        worker.process.wait(PATIENCE)
        scene.worker("-c", "1")
    scene.let_end(waiting)
    scene.wait_until(lambda: waiting in scene.keys("end"))
    scene.wait_until_empty()
    # Only a task that was interrupted ends there.
    assert set(dead_letters(scene)) <= {running}
    assert scene.keys("start") == ["a", "b"]
    (copy,) = scene.calls("SendMessage")
    assert copy.body["MessageAttributes"] == attributes


def group(scene: Scene, key: str) -> dict[str, Any]:
    return {"MessageGroupId": key} if scene.is_fifo else {}


def send_for_the_last_time(scene: Scene, *keys: str, **options: Any) -> None:
    """Send tasks that run until they may end, and receive each once: one receive is left."""
    for key in keys:
        scene.send("hold", key, task_id=key, **options, **group(scene, key))
    handles: set[str] = set()
    while len(handles) < len(keys):
        answer = scene.client.receive_message(QueueUrl=scene.url, MaxNumberOfMessages=10)
        handles |= {message["ReceiptHandle"] for message in answer.get("Messages", ())}
    for handle in handles:
        make_visible(scene, handle)
    scene.proxy.forget()


def waiting_behind(scene: Scene) -> str:
    """Return the task that runs once a worker holds two messages: the other waits for it."""
    (running, *_) = scene.wait_for_notes("start", 1)
    scene.wait_until(lambda: len(receives(scene)) >= 2)
    return running.key


def dead_letters(scene: Scene) -> list[str]:
    """Return the task ids of the messages in the dead-letter queue."""
    ids = []
    while messages := scene.client.receive_message(
        QueueUrl=scene.dead_letters, MaxNumberOfMessages=10
    ).get("Messages"):
        ids += [json.loads(base64.b64decode(each["Body"]))["headers"]["id"] for each in messages]
    return sorted(ids)
