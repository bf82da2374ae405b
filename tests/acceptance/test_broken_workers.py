"""A worker that can't run any task exits, as a stock one does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.acceptance.record import receives
from tests.acceptance.scene import LONG, Scene
from tests.support.waiting import PATIENCE

NewScene = Callable[..., Scene]


def test_a_worker_whose_pool_takes_no_task_exits_with_an_error_and_releases_its_messages(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG, max_receive_count=3)
    for number in range(12):
        scene.send("work", str(number))
    worker = scene.worker("-P", "threads", "-c", "2", env={"PROJ_NO_THREADS": "1"}, wait=False)
    assert worker.process.wait(PATIENCE) == 1
    assert "the pool takes no tasks: the worker is broken" in worker.logs()
    assert "Unrecoverable error" in worker.logs()
    scene.wait_until(lambda: scene.counts() == (12, 0))
    assert scene.counts(scene.dead_letters) == (0, 0)


def test_a_worker_whose_pool_can_not_grow_as_its_autoscaler_wants_refuses_to_start(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    worker = scene.worker("-P", "threads", "--autoscale=6,2", wait=False)
    assert worker.process.wait(PATIENCE) == 1
    assert "--autoscale: must not be given for pool 'thread', which can't grow" in worker.logs()


def test_a_worker_survives_a_result_backend_that_is_down(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene, results = new_scene(attributes=LONG), tmp_path / "results"
    results.mkdir()
    conf = {"result_backend": f"file://{results}", "task_ignore_result": False}
    worker = scene.worker("-c", "1", conf=conf)
    scene.send("hold", "long")
    scene.wait_for_notes("start", 1)
    # Only after they are received: before that, they would not even wait.
    expires = datetime.now(timezone.utc) + timedelta(seconds=20)
    for number in range(3):
        scene.send("hold", f"late {number}", expires=expires)
    scene.wait_until(lambda: len(receives(scene)) == 4)
    results.rmdir()
    scene.wait_until(lambda: datetime.now(timezone.utc) > expires)
    scene.let_end("long")
    # The backend must record for each that it has expired.
    scene.wait_until(lambda: worker.logs().count("can't be run") >= 3)
    results.mkdir()
    scene.let_end("good")
    scene.send("hold", "good")
    scene.wait_for_notes("end", 2)
    scene.wait_until_empty()
    assert "the worker is broken" not in worker.logs()
