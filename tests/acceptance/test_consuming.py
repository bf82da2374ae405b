"""A worker polls as soon as it has room, and only for as many messages as it has room for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.record import receives_by_time
from tests.acceptance.scene import LONG, Scene
from tests.support.faults import fail, first, reset, throttle

NewScene = Callable[..., Scene]


@pytest.mark.parametrize("multiplier", [1, 4])
def test_a_freed_prefetch_slot_is_filled_without_waiting_for_the_polling_interval(
    new_scene: NewScene, multiplier: int
) -> None:
    # A message that lapses on a slow machine and is received again would count twice.
    scene = new_scene(attributes=LONG)
    for number in range(24):
        scene.send("work", f"{number:02}")
    # A worker that waits for it once takes longer than the test waits.
    polls = {"wait_time_seconds": 1, "polling_interval": 100}
    options = {"region": "us-east-1", "is_secure": False, **polls}
    room = f"--prefetch-multiplier={multiplier}"
    scene.worker("-c", "1", "-P", "threads", room, conf={"broker_transport_options": options})
    scene.wait_for_notes("end", 24)
    ends = [note.at for note in scene.notes("end")]
    for answered_at, received in receives_by_time(scene):
        ended = sum(end < answered_at for end in ends)
        assert received - ended <= multiplier


@pytest.mark.oldest
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


@pytest.mark.oldest
def test_receives_that_fail_do_not_end_the_consuming(new_scene: NewScene) -> None:
    scene = new_scene()
    # Before the worker starts: an open poll would receive the messages.
    for fault in (throttle(), fail(), fail(403, "AccessDenied"), reset()):
        # Each rule faults its first call and passes later ones to the next rule.
        scene.proxy.rule("ReceiveMessage", first(1, fault))
    for number in range(3):
        scene.send("work", str(number))
    worker = scene.worker("-c", "1", "-P", "threads")
    scene.wait_for_notes("end", 3)
    scene.wait_until_empty()
    assert {400, 403, 500} < {call.status for call in scene.calls("ReceiveMessage")}
    assert "has no lease" not in worker.logs()
    assert "not tested" not in worker.logs()
