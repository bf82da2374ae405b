"""A message on its last receive whose task has not started does not become a dead letter.

SQS moves a message to the dead-letter queue when it is released after `maxReceiveCount` receives.
The queue's visibility timeout is long: nothing becomes visible again except by a release.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.record import receives
from tests.acceptance.scene import LONG, Scene
from tests.support.faults import deny, fail
from tests.support.waiting import PATIENCE

NewScene = Callable[..., Scene]

#: For the whole test, or not at all, the pool may start a task of a worker that ends.
PATIENT, AT_ONCE = {"PROJ_START_SECONDS": str(PATIENCE)}, {"PROJ_START_SECONDS": "0"}


@pytest.mark.parametrize("most", [2, 3])
@pytest.mark.parametrize(
    ("pool", "is_fifo"), [("prefork", False), ("threads", False), ("prefork", True)]
)
def test_a_warm_shutdown_runs_what_was_received_for_the_last_time(
    new_scene: NewScene, pool: str, is_fifo: bool, most: int
) -> None:
    # A FIFO queue has no other way, so it needs no time.
    env = AT_ONCE if is_fifo else PATIENT
    scene = new_scene(max_receive_count=most, attributes=LONG, is_fifo=is_fifo)
    send_for_the_last_time(scene, "a", "b")
    worker = scene.worker("-c", "1", "-P", pool, env=env)
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


@pytest.mark.parametrize("most", [2, 3])
@pytest.mark.parametrize(
    ("end", "pool"),
    [
        *itertools.product(["warm", "soft", "cold"], ["prefork", "threads"]),
        # Threads run on all tasks that they were given.
        ("lost connection", "prefork"),
    ],
)
def test_what_can_not_run_is_sent_again_and_runs_on_another_worker(
    new_scene: NewScene, tmp_path: Path, end: str, pool: str, most: int
) -> None:
    scene = new_scene(max_receive_count=most, attributes=LONG)
    attributes = {"tenant": {"DataType": "String", "StringValue": "ours"}}
    send_for_the_last_time(scene, "a", "b", message_attributes=attributes)
    conf = {"worker_soft_shutdown_timeout": 3 if end == "soft" else 0}
    broken = tmp_path / "break"
    env = {**AT_ONCE, "PROJ_BREAK": str(broken)}
    worker = scene.worker("-c", "1", "-P", pool, conf=conf, env=env)
    running = waiting_behind(scene)
    (waiting,) = {"a", "b"} - {running}
    if end == "lost connection":
        broken.touch()
    else:
        worker.kill("SIGTERM" if end == "warm" else "SIGQUIT")
    # SQS has confirmed the new message, and then the delete of the old one.
    worker.wait_for_log("it was sent again as")
    if (end, pool) != ("cold", "prefork"):
        scene.let_end(running)
    if end != "lost connection":
        worker.process.wait(PATIENCE)
        scene.worker("-c", "1", "-P", pool)
    scene.let_end(waiting)
    scene.wait_until(lambda: waiting in scene.keys("end"))
    scene.wait_until_empty()
    # Only a task that was interrupted ends there.
    assert set(dead_letters(scene)) <= {running}
    assert scene.keys("start") == ["a", "b"]
    (copy,) = scene.calls("SendMessage")
    assert copy.body["MessageAttributes"] == attributes


@pytest.mark.parametrize("pool", ["solo", "gevent", "eventlet"])
def test_no_pool_makes_a_dead_letter_of_what_it_never_ran(new_scene: NewScene, pool: str) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    conf = {"worker_soft_shutdown_timeout": 3}
    send_for_the_last_time(scene, "a", "b", "c")
    worker = scene.worker("-c", "1", "-P", pool, conf=conf)
    running = waiting_behind(scene, 3)
    worker.kill("SIGQUIT")
    worker.wait_for_log("Initiating Soft Shutdown")
    scene.let_end(running)
    for key in ("a", "b", "c"):
        scene.let_end(key)
    worker.process.wait(PATIENCE)
    scene.worker("-c", "1", "-P", pool)
    scene.wait_until_empty()
    assert set(dead_letters(scene)) <= set(scene.keys("start")) == {"a", "b", "c"}


@pytest.mark.parametrize("fault", [deny(), fail()], ids=["denied", "failed"])
def test_a_message_that_can_not_be_sent_again_is_released(new_scene: NewScene, fault: Any) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    send_for_the_last_time(scene, "a", "b")
    worker = scene.worker("-c", "1", "-P", "threads", env=AT_ONCE)
    running = waiting_behind(scene)
    scene.proxy.rule("SendMessage", fault)
    worker.kill("SIGTERM")
    scene.wait_until(lambda: scene.counts() == (1, 1))
    scene.let_end(running)
    assert worker.process.wait(PATIENCE) == 0
    assert worker.logs().count("can't be sent again") == 1


def test_a_rolling_deploy_makes_no_dead_letter_of_what_it_never_ran(new_scene: NewScene) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    keys = [f"{number:02}" for number in range(16)]
    for key in keys:
        scene.send("hold", key, task_id=key)
    pools = itertools.cycle(["prefork", "threads"])
    workers = [scene.worker("-c", "2", "-P", next(pools)) for _ in range(2)]
    # Each holds eight messages, and runs two of them until the end.
    scene.wait_until(lambda: len(receives(scene)) == 16)
    for turn in range(4):
        workers.append(scene.worker("-c", "2", "-P", next(pools)))
        count = len(receives(scene))
        workers[turn].kill("SIGTERM")

        def are_handed_on(count: int = count) -> bool:
            # Each has messages to release. From the third on, all were received for the last time.
            is_done = len(receives(scene)) > count and scene.counts() == (0, 16)
            return is_done or any(scene.counts(scene.dead_letters))

        scene.wait_until(are_handed_on)
    for key in keys:
        scene.let_end(key)
    scene.wait_until_empty()
    assert [worker.process.wait(PATIENCE) for worker in workers[:4]] == [0] * 4
    assert dead_letters(scene) == []
    assert scene.keys("end") == scene.keys("start") == keys


def group(scene: Scene, key: str) -> dict[str, Any]:
    return {"MessageGroupId": key} if scene.is_fifo else {}


def send_for_the_last_time(scene: Scene, *keys: str, **options: Any) -> None:
    """Send tasks that run until they may end, and receive each until one receive is left."""
    for key in keys:
        scene.send("hold", key, task_id=key, **options, **group(scene, key))
    for _ in range((scene.max_receive_count or 0) - 1):
        handles: set[str] = set()
        while len(handles) < len(keys):
            answer = scene.client.receive_message(QueueUrl=scene.url, MaxNumberOfMessages=10)
            handles |= {message["ReceiptHandle"] for message in answer.get("Messages", ())}
        for handle in handles:
            scene.client.change_message_visibility(
                QueueUrl=scene.url, ReceiptHandle=handle, VisibilityTimeout=0
            )
    scene.proxy.forget()


def waiting_behind(scene: Scene, count: int = 2) -> str:
    """Return the task that runs once a worker holds so many messages: the others wait for it."""
    (running, *_) = scene.wait_for_notes("start", 1)
    scene.wait_until(lambda: len(receives(scene)) >= count)
    return running.key


def dead_letters(scene: Scene) -> list[str]:
    """Return the task ids of the messages in the dead-letter queue."""
    ids = []
    while messages := scene.client.receive_message(
        QueueUrl=scene.dead_letters, MaxNumberOfMessages=10
    ).get("Messages"):
        ids += [json.loads(base64.b64decode(each["Body"]))["headers"]["id"] for each in messages]
    return sorted(ids)
