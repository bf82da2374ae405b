"""A message that the open long poll receives after a worker's shutdown has begun is released.

The queue's visibility timeout is long: a message that is visible again was released. The server
delivers a message to the poll that waits for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.record import receives
from tests.acceptance.scene import LONG, Scene
from tests.support.recording import Call
from tests.support.waiting import PATIENCE
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
#: A poll that began so many seconds ago leaves most of its 20 s to the test.
YOUNG = 3
#: Logged when the pool no longer receives tasks.
TAKEN_OVER = "receiving ends"


def start(
    scene: Scene, pool: str, env: Mapping[str, str] | None = None, **conf: Any
) -> ProcessWorker:
    """Start a worker with the longest possible polls."""
    options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 20}
    return scene.worker(
        "-c", "2", "-P", pool, conf={"broker_transport_options": options, **conf}, env=env
    )


def wait_for_open_poll(scene: Scene) -> None:
    """Return when a poll has just begun to wait at the server."""

    def is_new(call: Call) -> bool:
        since = call.forwarded_at
        return call.answered_at is None and since is not None and time.monotonic() - since < YOUNG

    scene.wait_until(lambda: any(is_new(call) for call in scene.calls("ReceiveMessage")))


def test_an_idle_worker_releases_messages_of_its_last_poll(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    worker = start(scene, "prefork")
    wait_for_open_poll(scene)
    worker.kill("SIGTERM")
    worker.wait_for_log(TAKEN_OVER)
    scene.send("work", "a")
    assert worker.process.wait(PATIENCE) == 0
    assert len(receives(scene)) == 1
    assert scene.counts() == (1, 0)
    assert scene.keys("start") == []


def test_a_pool_without_an_event_loop_runs_or_releases_messages_of_its_last_poll(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = start(scene, "gevent")
    wait_for_open_poll(scene)
    worker.kill("SIGTERM")
    worker.wait_for_log("shutdown (MainProcess)")
    scene.send("work", "a")
    worker.process.wait(PATIENCE)
    visible, hidden = scene.counts()
    assert (visible + len(scene.keys("end")), hidden) == (1, 0)


def test_a_warm_shutdown_releases_messages_of_the_last_poll_while_tasks_run(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = start(scene, "threads")
    scene.send("hold", "long")
    scene.wait_for_notes("start", 1)
    wait_for_open_poll(scene)
    worker.kill("SIGTERM")
    worker.wait_for_log(TAKEN_OVER)
    scene.send("work", "a")
    scene.wait_until(lambda: len(receives(scene)) == 2)
    scene.wait_until(lambda: scene.counts() == (1, 1))
    scene.let_end("long")
    assert worker.process.wait(PATIENCE) == 0
    assert scene.counts() == (1, 0)
    assert scene.keys("start") == scene.keys("end") == ["long"]


def test_a_soft_shutdown_releases_messages_of_the_last_poll_while_it_waits_for_tasks(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    # Longer than the test waits: this timeout does not end first.
    worker = start(scene, "threads", worker_soft_shutdown_timeout=2 * PATIENCE)
    scene.send("hold", "long")
    scene.wait_for_notes("start", 1)
    wait_for_open_poll(scene)
    worker.kill("SIGQUIT")
    worker.wait_for_log(TAKEN_OVER)
    scene.send("work", "a")
    scene.wait_until(lambda: len(receives(scene)) == 2)
    scene.wait_until(lambda: scene.counts() == (1, 1))
    assert scene.keys("start") == ["long"]


@pytest.mark.parametrize("moment", ["reading", "delivering"])
def test_a_soft_shutdown_while_a_poll_is_processed_releases_its_messages(
    new_scene: NewScene, tmp_path: Path, moment: str
) -> None:
    scene, quit_now = new_scene(attributes=LONG), tmp_path / "quit"
    start(
        scene,
        "threads",
        {"PROJ_QUIT": str(quit_now), "PROJ_QUIT_DURING": moment},
        worker_soft_shutdown_timeout=2 * PATIENCE,
    )
    scene.send("hold", "long")
    scene.wait_for_notes("start", 1)
    wait_for_open_poll(scene)
    quit_now.touch()
    scene.send("work", "a")
    scene.wait_until(lambda: len(receives(scene)) == 2)
    scene.wait_until(lambda: scene.counts() == (1, 1))
    assert not quit_now.exists()
    assert scene.keys("start") == ["long"]


def test_a_cold_shutdown_releases_messages_of_the_last_poll_before_the_worker_exits(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = start(scene, "prefork")
    wait_for_open_poll(scene)
    worker.kill("SIGQUIT")
    worker.wait_for_log(TAKEN_OVER)
    scene.send("work", "a")
    worker.process.wait(PATIENCE)
    assert len(receives(scene)) == 1
    assert scene.counts() == (1, 0)
    assert scene.keys("start") == []
