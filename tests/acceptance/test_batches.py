"""Tasks that run with many messages at once, by celery-batches.

These tasks have their own strategy: Celery's requests of their messages never report that they
run, and nothing reports that a batch is lost with its process.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_sqs_heartbeat.worker.versions import require_versions
from tests.acceptance.record import receives
from tests.acceptance.scene import LONG, Scene
from tests.support.waiting import PATIENCE
from tests.support.workers import ProcessWorker

pytestmark = pytest.mark.batches

NewScene = Callable[..., Scene]
FULL = 10


def test_every_name_that_batches_need_is_there() -> None:
    # Not at the top: only the environment of these tests has it.
    from celery_batches import Batches

    require_versions()
    assert "_tref" in Batches.__init__.__code__.co_names


def keys(count: int) -> list[str]:
    return [f"m{number:02}" for number in range(count)]


def send(scene: Scene, task: str, count: int = FULL) -> None:
    for key in keys(count):
        scene.send(task, key)


def start(scene: Scene) -> ProcessWorker:
    """Start a worker that has room for a batch while it runs one. Only full batches run."""
    room = ["-c", "1", "--prefetch-multiplier", "20"]
    return scene.worker(*room, env={"PROJ_BATCHES": "3600"})


def test_a_warm_shutdown_immediately_releases_messages_that_wait_for_a_full_batch(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = start(scene)
    scene.send("hold", "long")
    scene.wait_for_notes("start", 1)
    send(scene, "batch_hold", 3)
    scene.wait_until(lambda: len(receives(scene)) == 4)
    worker.kill("SIGTERM")
    # Another task still runs.
    scene.wait_until(lambda: scene.counts() == (3, 1))
    scene.let_end("long")
    assert worker.wait_for_exit(PATIENCE) == 0
    assert scene.counts() == (3, 0)
    assert scene.keys("start") == ["long"]


def test_a_batch_is_received_again_soon_after_its_process_was_killed(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    start(scene)
    send(scene, "batch_die")
    scene.wait_for_notes("end", FULL)
    scene.wait_until_empty()
    assert scene.keys("start") == sorted(2 * keys(FULL))
    assert scene.keys("end") == keys(FULL)
