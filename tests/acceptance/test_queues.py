"""A worker of several queues: of each the messages are kept by its own terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.orders import MODULE, leases, order, wait_for_no_lease
from tests.acceptance.record import extensions, receives, timeouts_asked
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
SHORT = {"VisibilityTimeout": "8"}
OPTIONS: dict[str, Any] = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}


def test_each_of_several_queues_is_kept_by_its_own_visibility_timeout(
    new_scene: NewScene,
) -> None:
    own = new_scene(attributes={"VisibilityTimeout": "80"})
    set_, made = new_scene(attributes=LONG), new_scene()
    # The worker makes the third one anew.
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
        scene.wait_until(lambda scene=scene: len(extensions(scene)) == 1)
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
def test_a_queue_added_at_run_time_is_kept_and_its_running_task_also_after_it_is_cancelled(
    new_scene: NewScene,
) -> None:
    scene, added = new_scene(attributes=SHORT), new_scene(attributes=SHORT)
    scene.worker("-c", "2", conf={"imports": [MODULE]})
    added.send("hold", "a")
    order(scene, "add_queue", added.name)
    scene.wait_for_notes("start", 1)
    assert leases(scene) == 1
    order(scene, "cancel_queue", added.name)
    # What the last poll of a cancelled queue brings is given back.
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
