"""A worker is connected again or restarted, or its pool: running tasks continue.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.acceptance.record import receives, released, wait_for_extensions
from tests.acceptance.scene import EARLY, LONG, OFTEN, SHORT, STEADY, Scene

NewScene = Callable[..., Scene]


def test_a_task_that_runs_through_a_reconnect_runs_once(new_scene: NewScene) -> None:
    scene = new_scene(attributes=STEADY)
    worker = scene.worker("-c", "2", orders=True, conf=OFTEN)
    for key in ("a", "b"):
        scene.send("hold", key)
    scene.wait_for_notes("start", 2)
    for key in ("c", "d"):
        scene.send("work", key)
    scene.wait_until(lambda: len(receives(scene)) >= 4)
    scene.order("lose_connection")
    worker.wait_for_log("lost on purpose")
    wait_for_extensions(scene, 2, since=time.monotonic(), messages=2)
    for key in ("a", "b"):
        scene.let_end(key)
    scene.wait_for_notes("end", 4)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "b", "c", "d"]
    # Only messages that had not started were released, each once.
    assert released(scene) <= 2


def test_a_pool_that_grows_and_shrinks_and_replaces_its_processes_runs_each_task_once(
    new_scene: NewScene,
) -> None:
    scene, keys = new_scene(attributes=SHORT), [f"t{number:02}" for number in range(10)]
    worker = scene.worker("--autoscale", "4,1", "--max-tasks-per-child", "1", conf=EARLY)
    for key in keys:
        scene.send("work", key, 3)
    ends = scene.wait_for_notes("end", len(keys))
    scene.wait_until_empty()
    assert scene.keys("start") == scene.keys("end") == keys
    assert len({note.pid for note in ends}) == len(keys)
    assert worker.logs().count("Scaling up") >= 1
    assert scene.late_extensions() == []


@pytest.mark.thorough
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
