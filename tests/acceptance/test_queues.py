"""A worker with several queues: each queue's messages are held by the queue's own settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.orders import MODULE, leases, order, wait_for_no_lease
from tests.acceptance.record import asked_of_receives, extensions, receives, timeouts_asked
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene

NewScene = Callable[..., Scene]
OPTIONS: dict[str, Any] = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}


def test_messages_of_each_queue_are_held_by_its_own_visibility_timeout(
    new_scene: NewScene,
) -> None:
    own = new_scene(attributes={"VisibilityTimeout": "80"})
    set_, made = new_scene(attributes=LONG), new_scene()
    # The worker creates the third one again.
    made.client.delete_queue(QueueUrl=made.url)
    conf = {
        "imports": [MODULE],
        # Each is extended once, ten seconds after its receive.
        "sqs_heartbeat_queues": {
            own.name: {"threshold": 70},
            set_.name: {"visibility_timeout": 70, "threshold": 60},
            made.name: {"threshold": 80},
        },
        "broker_transport_options": {**OPTIONS, "visibility_timeout": 90},
    }
    names = ",".join(scene.name for scene in (own, set_, made))
    own.worker("-c", "6", "-Q", names, conf=conf)
    for scene in (own, set_, made):
        scene.send("hold", scene.name)
        scene.send("work", f"short {scene.name}")
    own.wait_for_notes("start", 6)
    for scene in (own, set_, made):
        # On a slow machine, the short one may be extended, too.
        scene.wait_until(lambda scene=scene: extensions(scene))
    own.wait_until(lambda: leases(own) == 3)
    for scene in (own, set_, made):
        own.let_end(scene.name)
    own.wait_for_notes("end", 6)
    wait_for_no_lease(own)
    for scene, timeout in ((own, 80), (set_, 70), (made, 90)):
        scene.wait_until_empty()
        assert len(receives(scene)) == 2
        assert set(timeouts_asked(scene)) == {timeout}


@pytest.mark.oldest
def test_a_queue_added_at_run_time_has_leases_even_for_a_task_that_runs_after_it_is_cancelled(
    new_scene: NewScene,
) -> None:
    scene, added = new_scene(attributes=STEADY), new_scene(attributes=STEADY)
    scene.worker("-c", "2", conf={"imports": [MODULE], **OFTEN})
    added.send("hold", "a")
    order(scene, "add_queue", added.name)
    scene.wait_for_notes("start", 1)
    assert leases(scene) == 1
    order(scene, "cancel_queue", added.name)
    # Messages that the last poll of a cancelled queue receives are released.
    added.send("work", "b")
    scene.send("work", "c")
    scene.wait_for_notes("end", 1)
    added.wait_until(lambda: extensions(added))
    added.wait_until(lambda: added.counts() == (1, 1))
    scene.wait_until(lambda: leases(scene) == 1)
    scene.let_end("a")
    added.wait_until(lambda: added.counts() == (1, 0))
    wait_for_no_lease(scene)
    order(scene, "add_queue", added.name)
    scene.wait_for_notes("end", 3)
    added.wait_until_empty()
    wait_for_no_lease(scene)
    assert scene.keys("start") == ["a", "b", "c"]


def test_a_queue_added_to_a_running_worker_has_leases_although_the_settings_do_not_fit_it(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene, added = new_scene(attributes=STEADY), new_scene()
    break_connection = tmp_path / "break"
    worker = scene.worker(
        "-c",
        "2",
        conf={"imports": [MODULE], **OFTEN},
        env={"PROJ_BREAK": str(break_connection)},
    )
    scene.proxy.wait_for("ReceiveMessage")
    order(scene, "add_queue", added.name)
    worker.wait_for_log(f"queue {added.name} was added, which the settings do not fit: ")
    added.send("hold", "a")
    scene.wait_for_notes("start", 1)
    break_connection.touch()
    worker.wait_for_log("lost on purpose")
    added.send("work", "b")
    scene.wait_for_notes("end", 1)
    added.wait_until(lambda: extensions(added))
    scene.let_end("a")
    added.wait_until_empty()
    assert scene.keys("start") == ["a", "b"]
    assert "Traceback" not in worker.logs()
    assert worker.logs().count("which the settings do not fit") == 1


@pytest.mark.oldest
def test_tasks_run_once_although_the_queues_timeout_is_lowered_below_their_run_time(
    new_scene: NewScene,
) -> None:
    """A worker's copy of the attributes may be old, so each receive sends the timeout."""
    scene = new_scene(attributes={"VisibilityTimeout": "120"})
    for _ in range(2):
        scene.worker("-c", "2", "-P", "threads")
    set_timeout(scene, 3)
    keys = ["a", "b", "c", "d"]
    for key in keys:
        scene.send("work", key, 8)
    scene.wait_for_notes("end", 4)
    scene.wait_until_empty()
    assert scene.keys("start") == keys
    assert asked_of_receives(scene) == {120}


def test_a_worker_continues_when_its_threshold_no_longer_fits_the_queue(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "120"})
    break_connection = tmp_path / "break"
    worker = scene.worker(
        "-c",
        "2",
        conf={"sqs_heartbeat_threshold": 100},
        env={"PROJ_REFRESH": "0", "PROJ_BREAK": str(break_connection)},
    )
    # It polls with the attributes that it read at its start.
    scene.proxy.wait_for("ReceiveMessage")
    set_timeout(scene, 60)
    worker.wait_for_log("which the settings do not fit")
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    break_connection.touch()
    worker.wait_for_log("lost on purpose")
    scene.send("work", "b")
    scene.wait_until(lambda: len(receives(scene)) == 2)
    scene.let_end("a")
    scene.wait_for_notes("end", 2)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "b"]
    assert worker.logs().count("which the settings do not fit") == 1
    assert asked_of_receives(scene) == {120, 60}
    # It would be hundreds, each sent as soon as the previous one is confirmed.
    assert extensions(scene).total() < 10


def set_timeout(scene: Scene, seconds: int) -> None:
    attributes = {"VisibilityTimeout": str(seconds)}
    scene.client.set_queue_attributes(QueueUrl=scene.url, Attributes=attributes)
