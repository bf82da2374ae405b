"""A worker is connected again or restarted, or its pool: running tasks continue.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.record import receives, released, timeouts_asked, wait_for_extensions
from tests.acceptance.scene import EARLY, LONG, OFTEN, ORDERS, SHORT, STEADY, Scene
from tests.support.environment import SAFE_ENV
from tests.support.process import LoggedProcess
from tests.support.workers import ROOT, ProcessWorker

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


@pytest.mark.versions
def test_a_task_cancelled_for_a_lost_connection_is_received_again(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    conf = {"worker_cancel_long_running_tasks_on_connection_loss": True}
    worker = scene.worker("-c", "1", orders=True, conf=conf)
    scene.send("slow_once", "a", 200)
    scene.wait_for_notes("start", 1)
    # kombu 5.5's polls block the event loop, which learns only later that the task runs.
    # It does not cancel a task of which it does not know.
    polls = len(scene.calls("ReceiveMessage"))
    scene.wait_until(lambda: len(scene.calls("ReceiveMessage")) >= polls + 3)
    scene.order("lose_connection")
    worker.wait_for_log("lost on purpose")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a"]


@pytest.mark.versions
def test_a_pool_restart_keeps_running_and_waiting_messages(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "2", orders=True, conf={"worker_pool_restarts": True})
    running, waiting = ["a", "b"], ["c", "d", "e", "f"]
    for key in running:
        scene.send("hold", key)
    old = {note.pid for note in scene.wait_for_notes("start", 2)}
    for key in waiting:
        scene.send("work", key)
    scene.wait_until(lambda: scene.leases() == 6)
    scene.order("restart_pool")
    assert scene.leases() == 6
    for key in running:
        scene.let_end(key)
    scene.wait_for_notes("end", 6)
    scene.wait_until_empty()
    scene.wait_for_no_lease()
    assert scene.keys("start") == running + waiting
    assert timeouts_asked(scene) == []
    assert old.isdisjoint(note.pid for note in scene.notes("start") if note.key in waiting)


def test_sighup_releases_waiting_messages_and_the_restarted_worker_runs_them(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene = new_scene(attributes=LONG)
    env = {
        "CELERY_BROKER_URL": scene.proxy.broker_url,
        "PROJ_LEDGER": str(scene.ledger),
        "PROJ_CONF": json.dumps({"task_default_queue": scene.name, "imports": [ORDERS]}),
    }
    # After `python -m celery` it can't restart itself.
    script = [sys.executable, str(Path(sys.executable).with_name("celery"))]
    options = ["-A", "tests.acceptance.proj", "worker", "-l", "INFO", "-Q", scene.name]
    worker = ProcessWorker(
        LoggedProcess(
            "worker",
            [*script, *options, "--heartbeat-sqs", "-c", "1"],
            env={**os.environ, **SAFE_ENV, **env},
            cwd=ROOT,
            log_dir=tmp_path,
        )
    )
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
        scene.wait_for_no_lease()
    finally:
        worker.teardown()
    assert scene.keys("start") == ["a", "b", "c"]
    assert worker.logs().count("ready.") == 2


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
