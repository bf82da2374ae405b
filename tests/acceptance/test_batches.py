"""Tasks that run with many messages at once, by celery-batches.

These tasks have their own strategy: Celery's requests of their messages never report that they
run, and nothing reports that a batch is lost with its process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.worker.versions import require_versions
from tests.acceptance.orders import MODULE, leases
from tests.acceptance.record import receives
from tests.acceptance.scene import LONG, Scene
from tests.acceptance.test_lost_leases import CHANGES, STOLEN
from tests.support.waiting import PATIENCE
from tests.support.workers import ProcessWorker

pytestmark = pytest.mark.batches

NewScene = Callable[..., Scene]
FULL = 10


def start(
    scene: Scene,
    *args: str,
    wait: str = "3600",
    conf: dict[str, Any] | None = None,
    **env: str,
) -> ProcessWorker:
    """Start a worker that has room for a batch while it runs one.

    Args:
        wait: How long a batch that is not full waits, in seconds.
    """
    room = ["-c", "1", "--prefetch-multiplier", "20"]
    conf = {"imports": [MODULE], **(conf or {})}
    return scene.worker(*room, *args, conf=conf, env={"PROJ_BATCHES": wait, **env})


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


def wait_for_polls(scene: Scene, count: int) -> None:
    """Return once workers have polled the queue so often again."""
    polls = len(scene.calls("ReceiveMessage"))
    scene.wait_until(lambda: len(scene.calls("ReceiveMessage")) >= polls + count)


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_warm_shutdown_lets_a_batch_finish(new_scene: NewScene, pool: str) -> None:
    scene = new_scene(attributes=LONG)
    first = start(scene, "-P", pool)
    send(scene, "batch_hold")
    scene.wait_for_notes("start", FULL)
    start(scene, "-P", pool)
    first.kill("SIGTERM")
    first.wait_for_log("Warm shutdown")
    # The second worker would receive messages that were released.
    wait_for_polls(scene, 10)
    scene.let_end("batch")
    assert first.wait_for_exit(PATIENCE) == 0
    scene.wait_until_empty()
    assert sorted(receives(scene)) == sorted(set(receives(scene)))
    assert scene.keys("start") == scene.keys("end") == keys(FULL)


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


def test_a_cold_shutdown_waits_for_a_batch_because_celery_can_not_cancel_it(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    first = start(scene)
    send(scene, "batch_hold")
    scene.wait_for_notes("start", FULL)
    start(scene)
    first.kill("SIGQUIT")
    first.wait_for_log("Hitting Ctrl+C again")
    wait_for_polls(scene, 10)
    scene.let_end("batch")
    first.wait_for_exit(PATIENCE)
    scene.wait_until_empty()
    assert scene.keys("start") == scene.keys("end") == keys(FULL)


def test_a_batch_is_received_again_soon_after_its_process_was_killed(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    # Only full batches run: others would mix messages that ran before with new ones.
    start(scene)
    send(scene, "batch_die")
    scene.wait_for_notes("end", FULL)
    scene.wait_until_empty()
    assert scene.keys("start") == sorted(2 * keys(FULL))
    assert scene.keys("end") == keys(FULL)


def test_a_batch_survives_a_lost_connection(new_scene: NewScene, tmp_path: Path) -> None:
    scene, broken = new_scene(attributes=LONG), tmp_path / "break"
    worker = start(scene, PROJ_BREAK=str(broken))
    send(scene, "batch_hold", FULL + 3)
    scene.wait_for_notes("start", FULL)
    # Held, not just answered: an answer under way would be lost with the connection.
    scene.wait_until(lambda: leases(scene) == FULL + 3)
    broken.touch()
    # Messages that waited for a full batch are released, and received again.
    scene.wait_until(lambda: len(receives(scene)) == FULL + 6)
    # With those three and the next ones, four make a full batch, and ten another.
    rest = [f"n{number:02}" for number in range(FULL + 4)]
    for key in rest:
        scene.send("batch_hold", key)
    scene.let_end("batch")
    scene.wait_until_empty()
    assert scene.keys("start") == scene.keys("end") == sorted([*keys(FULL + 3), *rest])
    assert worker.logs().count("is not started: its message was released") == 3


def test_a_batch_that_is_not_full_is_flushed_in_time_after_a_lost_connection(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene, broken = new_scene(attributes=LONG), tmp_path / "break"
    start(scene, wait="3", PROJ_BREAK=str(broken))
    scene.send("batch_hold", "before")
    scene.wait_until(lambda: leases(scene) == 1)
    broken.touch()
    scene.let_end("batch")
    scene.wait_for_notes("end", 1)
    scene.send("batch_hold", "after")
    scene.wait_for_notes("end", 2)
    scene.wait_until_empty()


def test_a_message_whose_lease_is_lost_while_it_waits_is_not_in_the_batch(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "30"})
    # Extended every two seconds, so they are lost long before they are received again.
    worker = start(scene, conf={"sqs_heartbeat_threshold": 28})
    scene.let_end("batch")
    send(scene, "batch_hold", 2)
    scene.wait_until(lambda: leases(scene) == 2)
    scene.proxy.rule(CHANGES, STOLEN)
    scene.wait_for_notes("lease_lost", 2)
    scene.proxy.clear()
    # They fill that batch, and another with the two when these are received again.
    rest = [f"n{number:02}" for number in range(2 * (FULL - 2))]
    for key in rest:
        scene.send("batch_hold", key)
    worker.wait_for_log("is not started: its lease is lost")
    scene.wait_for_notes("end", 2 + len(rest))
    scene.wait_until_empty()
    assert len(receives(scene)) == 4 + len(rest)
    assert scene.keys("start") == scene.keys("end") == [*keys(2), *rest]
