"""A worker that shuts down holds the messages that it runs and releases the others.

The queue's visibility timeout is long: a message that another worker receives was released.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.record import (
    CHANGE,
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


def test_a_cold_shutdown_of_a_pool_that_can_not_stop_a_task_lets_it_end(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", "-P", "threads")
    scene.send("work", "a", 6)
    scene.wait_for_notes("start", 1)
    worker.kill("SIGQUIT")
    worker.process.wait(PATIENCE)
    assert scene.counts() == (0, 0)
    assert scene.keys("start") == ["a"]
    assert scene.keys("end") == ["a"]


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
