"""What a worker receives: from which queues, for how long, and how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.record import extensions, receives, timeouts_asked
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
        # Each is extended once, ten seconds after its receive.
        "sqs_heartbeat_queues": {
            own.name: {"threshold": 70},
            set_.name: {"visibility_timeout": 70, "threshold": 60},
            made.name: {"threshold": 80},
        },
        "broker_transport_options": {**OPTIONS, "visibility_timeout": 90},
    }
    names = ",".join(scene.name for scene in (own, set_, made))
    own.worker("-c", "6", "-Q", names, orders=True, conf=conf)
    for scene in (own, set_, made):
        scene.send("hold", scene.name)
        scene.send("work", f"short {scene.name}")
    own.wait_for_notes("start", 6)
    for scene in (own, set_, made):
        # On a slow machine, the short one may be extended, too.
        scene.wait_until(lambda scene=scene: extensions(scene))
    own.wait_until(lambda: own.leases() == 3)
    for scene in (own, set_, made):
        own.let_end(scene.name)
    own.wait_for_notes("end", 6)
    own.wait_for_no_lease()
    for scene, timeout in ((own, 80), (set_, 70), (made, 90)):
        scene.wait_until_empty()
        assert len(receives(scene)) == 2
        assert set(timeouts_asked(scene)) == {timeout}


@pytest.mark.versions
def test_a_queue_added_at_run_time_has_leases_even_for_a_task_that_runs_after_it_is_cancelled(
    new_scene: NewScene,
) -> None:
    scene, added = new_scene(attributes=STEADY), new_scene(attributes=STEADY)
    scene.worker("-c", "2", orders=True, conf=OFTEN)
    added.send("hold", "a")
    scene.order("add_queue", added.name)
    scene.wait_for_notes("start", 1)
    assert scene.leases() == 1
    scene.order("cancel_queue", added.name)
    # Messages that the last poll of a cancelled queue receives are released.
    added.send("work", "b")
    scene.send("work", "c")
    scene.wait_for_notes("end", 1)
    added.wait_until(lambda: extensions(added))
    added.wait_until(lambda: added.counts() == (1, 1))
    scene.wait_until(lambda: scene.leases() == 1)
    scene.let_end("a")
    added.wait_until(lambda: added.counts() == (1, 0))
    scene.wait_for_no_lease()
    scene.order("add_queue", added.name)
    scene.wait_for_notes("end", 3)
    added.wait_until_empty()
    scene.wait_for_no_lease()
    assert scene.keys("start") == ["a", "b", "c"]


@pytest.mark.versions
def test_a_worker_whose_tasks_take_long_leaves_the_next_ones_to_others(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "2")
    scene.send("work", "a")
    # From its end on, the worker knows the pace.
    scene.wait_until_empty()
    # The open poll, which may bring several, began before.
    scene.send("hold", "b")
    scene.wait_for_notes("start", 2)
    for key in "cde":
        scene.send("hold", key)
    scene.worker("-c", "2")
    scene.wait_for_notes("start", 5)
