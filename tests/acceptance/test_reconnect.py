"""A worker loses its broker connection while tasks run: the leases survive."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.record import receives, released, wait_for_extensions
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene

NewScene = Callable[..., Scene]


@pytest.fixture
def break_connection(tmp_path: Path) -> Path:
    return tmp_path / "break"


@pytest.mark.oldest
def test_a_task_that_runs_through_a_reconnect_runs_once(
    new_scene: NewScene, break_connection: Path
) -> None:
    scene = new_scene(attributes=STEADY)
    env = {"PROJ_BREAK": str(break_connection)}
    worker = scene.worker("-c", "2", conf=OFTEN, env=env)
    for key in ("a", "b"):
        scene.send("hold", key)
    scene.wait_for_notes("start", 2)
    for key in ("c", "d"):
        scene.send("work", key)
    scene.wait_until(lambda: len(receives(scene)) >= 4)
    break_connection.touch()
    worker.wait_for_log("lost on purpose")
    wait_for_extensions(scene, 2, since=time.monotonic(), messages=2)
    for key in ("a", "b"):
        scene.let_end(key)
    scene.wait_for_notes("end", 4)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "b", "c", "d"]
    # Only messages that had not started were released, each once.
    assert released(scene) <= 2


@pytest.mark.oldest
def test_a_task_cancelled_for_a_lost_connection_is_received_again(
    new_scene: NewScene, break_connection: Path
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker(
        "-c",
        "1",
        conf={"worker_cancel_long_running_tasks_on_connection_loss": True},
        env={"PROJ_BREAK": str(break_connection)},
    )
    scene.send("slow_once", "a", 200)
    scene.wait_for_notes("start", 1)
    # kombu 5.5's polls block the event loop, which learns only later that the task runs.
    # It does not cancel a task of which it does not know.
    polls = len(scene.calls("ReceiveMessage"))
    scene.wait_until(lambda: len(scene.calls("ReceiveMessage")) >= polls + 3)
    break_connection.touch()
    worker.wait_for_log("lost on purpose")
    scene.wait_for_notes("start", 2)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a"]
