"""A worker or its pool is restarted: running tasks are kept, waiting ones run afterwards.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.orders import MODULE, leases, order, wait_for_no_lease
from tests.acceptance.record import receives, timeouts_asked
from tests.acceptance.scene import LONG, Scene
from tests.acceptance.started import worker_by

NewScene = Callable[..., Scene]


@pytest.mark.oldest
def test_a_pool_restart_keeps_running_and_waiting_messages(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "2", conf={"imports": [MODULE], "worker_pool_restarts": True})
    running, waiting = ["a", "b"], ["c", "d", "e", "f"]
    for key in running:
        scene.send("hold", key)
    old = {note.pid for note in scene.wait_for_notes("start", 2)}
    for key in waiting:
        scene.send("work", key)
    scene.wait_until(lambda: leases(scene) == 6)
    order(scene, "restart_pool")
    assert leases(scene) == 6
    for key in running:
        scene.let_end(key)
    scene.wait_for_notes("end", 6)
    scene.wait_until_empty()
    wait_for_no_lease(scene)
    assert scene.keys("start") == running + waiting
    assert timeouts_asked(scene) == []
    assert old.isdisjoint(note.pid for note in scene.notes("start") if note.key in waiting)


def test_sighup_releases_waiting_messages_and_the_restarted_worker_runs_them(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene = new_scene(attributes=LONG)
    # After `python -m celery` it can't restart itself.
    script = [sys.executable, str(Path(sys.executable).with_name("celery"))]
    worker = worker_by(script, scene, "-c", "1", log=tmp_path)
    try:
        worker.wait_for_log("ready.")
        scene.send("hold", "a")
        scene.wait_for_notes("start", 1)
        scene.send("work", "b")
        scene.send("work", "c", countdown=1)
        scene.wait_until(lambda: len(receives(scene)) == 3)
        worker.kill(signal.SIGHUP)
        worker.wait_for_log("Restarting celery worker")
        scene.let_end("a")
        scene.wait_for_notes("end", 3)
        scene.wait_until_empty()
        wait_for_no_lease(scene)
    finally:
        worker.teardown()
    assert scene.keys("start") == ["a", "b", "c"]
    assert worker.logs().count("ready.") == 2


def test_in_a_rolling_deployment_hardly_any_message_is_received_in_vain(
    new_scene: NewScene,
) -> None:
    scene, seconds, count = new_scene(attributes=LONG), random.Random(1), 300
    for number in range(count):
        scene.send("work", str(number), seconds.uniform(1, 8))
    workers = [scene.worker("-c", "4", wait=False) for _ in range(5)]
    scene.wait_for_notes("end", count // 5)
    for worker in workers:
        scene.worker("-c", "4")
        worker.kill(signal.SIGTERM)
        worker.wait_for_exit()
    scene.wait_for_notes("end", count)
    scene.wait_until_empty()
    assert len(scene.notes("start")) == count
    assert len(receives(scene)) - count <= count / 100
