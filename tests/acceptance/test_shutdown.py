"""A worker that shuts down holds the messages that it runs and releases the others.

The queue's visibility timeout is long: a message that another worker receives was released. One on
its last receive whose task has not started does not become a dead letter.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.record import (
    CHANGE,
    make_visible,
    receives,
    release_calls,
    released_messages,
    wait_for_extensions,
)
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene
from tests.support.faults import delay, fail
from tests.support.waiting import PATIENCE

NewScene = Callable[..., Scene]
#: A poll that began so many seconds ago leaves most of its 20 s to the test.
YOUNG = 3


def test_a_warm_shutdown_immediately_releases_messages_that_no_process_has_started(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    first = scene.worker("-c", "1")
    scene.send("hold", "long")
    scene.wait_for_notes("start", 1)
    for key in ("b", "c", "d"):
        scene.send("work", key)
    scene.wait_until(lambda: len(receives(scene)) == 4)
    scene.worker("-c", "1")
    first.kill("SIGTERM")
    scene.wait_for_notes("end", 3)
    # Another worker has run them while the long task still runs.
    assert scene.keys("end") == ["b", "c", "d"]
    scene.let_end("long")
    assert first.process.wait(PATIENCE) == 0
    scene.wait_until_empty()
    assert scene.keys("start") == ["b", "c", "d", "long"]
    assert scene.keys("end") == ["b", "c", "d", "long"]


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_warm_shutdown_holds_running_messages_until_their_delete_is_confirmed(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(attributes=STEADY)
    worker = scene.worker("-c", "1", "-P", pool, conf=OFTEN)
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    scene.proxy.rule("DeleteMessageBatch", delay(1.0))
    worker.kill("SIGTERM")
    worker.wait_for_log("Warm shutdown")
    wait_for_extensions(scene, 2, since=time.monotonic())
    scene.let_end("a")
    assert worker.process.wait(PATIENCE) == 0
    assert scene.counts() == (0, 0)
    assert scene.keys("end") == ["a"]
    assert scene.keys("start") == ["a"]


def test_a_worker_that_gives_up_its_last_delete_names_the_message(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    conf = {"sqs_heartbeat_flush_timeout": 0.5}
    worker = scene.worker("-c", "1", "-P", "solo", conf=conf)
    scene.proxy.rule("DeleteMessageBatch", fail())
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    worker.kill("SIGTERM")
    assert worker.process.wait(PATIENCE) == 0
    (message_id,) = receives(scene)
    assert "the delete or release of 1 message within 0.5 s" in worker.logs()
    assert f"the delete of message {message_id} of {scene.url}, task" in worker.logs()


def test_a_cold_shutdown_releases_running_prefetched_and_eta_messages_in_batches(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "2")
    for key in ("a", "b"):
        scene.send("work", key, 200)
    scene.wait_for_notes("start", 2)
    for number in range(5):
        scene.send("work", f"waiting-{number}", 200)
    for number in range(4):
        scene.send("work", f"later-{number}", countdown=200)
    scene.wait_until(lambda: len(receives(scene)) == 11)
    # At most four calls at once: messages released while these are held share the next call.
    scene.proxy.rule(CHANGE, delay(0.5))
    worker.kill("SIGQUIT")
    worker.process.wait(PATIENCE)
    scene.wait_until(lambda: scene.counts() == (11, 0))
    assert len(released_messages(scene)) == 11
    assert len(release_calls(scene)) < 11
    assert scene.keys("end") == []


@pytest.mark.parametrize(
    ("env", "signal"),
    [
        pytest.param({}, "SIGQUIT", id="SIGQUIT"),
        # Celery reads it while it is imported.
        pytest.param(
            {"REMAP_SIGTERM": "SIGQUIT"}, "SIGTERM", id="SIGTERM remapped", marks=pytest.mark.fresh
        ),
    ],
)
def test_a_soft_shutdown_lets_short_tasks_end_and_releases_the_rest(
    new_scene: NewScene, env: dict[str, str], signal: str
) -> None:
    scene = new_scene(attributes=LONG)
    # The short one must end in that time, even on a slow machine.
    conf: dict[str, Any] = {"worker_soft_shutdown_timeout": 20}
    worker = scene.worker("-c", "2", conf=conf, env=env)
    scene.send("hold", "short")
    scene.send("work", "long", 200)
    scene.wait_for_notes("start", 2)
    scene.send("work", "waiting", 200)
    scene.wait_until(lambda: len(receives(scene)) == 3)
    worker.kill(signal)
    worker.wait_for_log("Initiating Soft Shutdown")
    scene.let_end("short")
    scene.wait_for_notes("end", 1)
    worker.process.wait(PATIENCE)
    scene.wait_until(lambda: scene.counts() == (2, 0))
    assert scene.keys("end") == ["short"]
    assert scene.keys("start") == ["long", "short"]


@pytest.mark.parametrize(
    ("pool", "begun"),
    [("prefork", "receiving ends"), ("gevent", "shutdown (MainProcess)")],
    ids=["prefork", "gevent"],
)
def test_a_message_of_the_last_poll_is_run_or_released(
    new_scene: NewScene, pool: str, begun: str
) -> None:
    scene = new_scene(attributes=LONG)
    # The longest possible polls. SQS delivers a message to the one that waits for it.
    options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 20}
    worker = scene.worker("-c", "2", "-P", pool, conf={"broker_transport_options": options})

    def has_new_poll() -> bool:
        return any(
            call.answered_at is None and time.monotonic() - (call.forwarded_at or 0.0) < YOUNG
            for call in scene.calls("ReceiveMessage")
        )

    scene.wait_until(has_new_poll)
    worker.kill("SIGTERM")
    worker.wait_for_log(begun)
    scene.send("work", "a")
    assert worker.process.wait(PATIENCE) == 0
    assert len(receives(scene)) == 1
    visible, hidden = scene.counts()
    assert (visible + len(scene.keys("end")), hidden) == (1, 0)


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
