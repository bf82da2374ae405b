"""Traces of two workers on one group that the machine of groups has not found."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.testing import FakeClock
from tests.model.ordered import FifoQueue, Side


class Scene:
    """Two workers that start each task as soon as it may begin."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.queue = FifoQueue(self.clock)
        self.sides = [Side(self.queue, lambda message_id: None, 90) for _ in range(2)]

    def poll(self, side: Side) -> None:
        side.poll(1)
        side.turn()
        side.start_tasks()
        side.deliver()

    def make_calls(self, side: Side) -> None:
        side.deliver()
        side.elsewhere.keeper.step()
        while side.elsewhere.calls.out:
            side.answer(side.elsewhere, 0, "done")
        side.elsewhere.keeper.step()
        side.deliver()

    def running(self, side: Side) -> list[int]:
        """Return the numbers of the messages that run on a worker."""
        return [self.queue.steps[each].number for each in side.running.values()]


@pytest.mark.parametrize("loss", ["expired", "lost"])
def test_a_lease_that_was_lost_stops_nothing_when_the_keeper_is_replaced(loss: str) -> None:
    scene = Scene()
    ours, other = scene.sides
    for _ in range(2):
        scene.queue.send("g")
    scene.poll(ours)
    scene.clock.advance(31)
    scene.poll(other)
    if loss == "lost":
        scene.make_calls(ours)
    else:
        ours.elsewhere.keeper.step()
        ours.deliver()
    other.succeed()
    scene.make_calls(other)
    scene.poll(ours)
    assert scene.running(ours) == [0, 1]
    ours.die(heard=99)
    ours.start()
    if loss == "lost":
        ours.fail(0)
    for _ in range(2):
        scene.make_calls(ours)
    scene.clock.advance(1)
    scene.poll(other)
    assert scene.running(other) == []
