"""Messages that wait in the worker, mostly for their ETA, are extended until they start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.acceptance import kinds
from tests.acceptance.orders import MODULE, leases, wait_for_no_lease
from tests.acceptance.record import extensions, receives, receives_by_time
from tests.acceptance.scene import Scene

NewScene = Callable[..., Scene]
SHORT = {"VisibilityTimeout": "20"}
#: Extended about every four seconds, with enough time left for a slow machine.
EAGER = {"sqs_heartbeat_threshold": 16}
LIMIT = 6
#: Time for two extensions, even if a busy machine takes ten seconds, in seconds.
COUNTDOWN = 24


def test_no_more_messages_with_a_countdown_are_held_than_the_limit_and_each_until_its_time(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=SHORT)
    keys = [f"{number:02}" for number in range(2 * LIMIT)]
    conf = {"imports": [MODULE], "worker_eta_task_limit": LIMIT, **EAGER}
    scene.worker("-c", "1", conf=conf)
    for key in keys:
        scene.send("work", key, countdown=COUNTDOWN)
    scene.wait_for_notes("end", len(keys))
    scene.wait_until_empty()
    wait_for_no_lease(scene)
    assert scene.keys("start") == keys
    assert len(receives(scene)) == len(keys)
    assert most_held(scene) == LIMIT
    assert twice(extensions(scene)) >= LIMIT
    assert scene.late_extensions() == []


def most_held(scene: Scene) -> int:
    """Return how many messages the worker held at most: received, and their task not ended."""
    ends = [note.at for note in scene.notes("end")]
    return max(
        received - sum(end < answered_at for end in ends)
        for answered_at, received in receives_by_time(scene)
    )


@pytest.mark.oldest
def test_a_message_is_extended_whatever_it_waits_for(new_scene: NewScene) -> None:
    scene = new_scene(attributes=SHORT)
    conf = {"imports": [MODULE, kinds.MODULE], "worker_prefetch_multiplier": 10, **EAGER}
    scene.worker("-c", "1", conf=conf)
    scene.send("hold", "runs")
    scene.wait_for_notes("start", 1)
    for key in ("limited now", "limited later"):
        send(scene, "four_a_minute", key)
    send(scene, "early", "early ack")
    scene.send("work", "late ack")
    scene.send("work", "countdown", countdown=1)
    scene.wait_until(lambda: leases(scene) == 6)
    before = extensions(scene)
    scene.wait_until(lambda: twice(extensions(scene) - before) >= 6)
    assert leases(scene) == 6
    scene.let_end("runs")
    scene.wait_for_notes("end", 6)
    scene.wait_until_empty()
    wait_for_no_lease(scene)
    keys = ["countdown", "early ack", "late ack", "limited later", "limited now", "runs"]
    assert scene.keys("start") == keys
    assert scene.late_extensions() == []


def twice(extended: Counter[str]) -> int:
    """Return how many messages were extended twice at least."""
    return sum(count >= 2 for count in extended.values())


def send(scene: Scene, task: str, key: str) -> None:
    options = {"queue": scene.name, "routing_key": scene.name}
    scene.app.send_task(f"{kinds.MODULE}.{task}", [key], **options)
