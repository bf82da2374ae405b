"""A message that crosses its own end on the link runs at most once."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.support.linked import Linked, message_of

QUEUE = "https://q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


class Side(Linked):
    """A worker and its keeper, which receives messages."""

    def __init__(self) -> None:
        super().__init__(jitter=1.0)

    def receive(self, name: str) -> None:  # type: ignore[override]
        self.elsewhere.receive(QUEUE, message_of(name, name, 1), TERMS, 30, 0.0)

    def known(self) -> list[str]:
        return [view.message_id for view in self.worker.snapshot()]


@pytest.fixture
def side() -> Side:
    return Side()


def again(side: Side, poll: float = 0.0, *, count: int = 2) -> ReceivedAs:
    """Have the keeper receive message "a" again."""
    message = message_of("a", f"a{count}", count)
    return side.elsewhere.receive(QUEUE, message, TERMS, 30, poll)


def test_a_message_whose_task_succeeded_as_it_came_again_is_deleted_and_not_run(side: Side) -> None:
    arrived: list[Any] = []
    side.receive("a")
    side.elsewhere.deliver()
    side.worker.pull()
    side.worker.on_arrived = arrived.extend
    side.elsewhere.keeper.let_expire("a")
    assert again(side) is ReceivedAs.NEW
    side.elsewhere.deliver()
    side.worker.done("a")
    side.worker.pull()
    side.elsewhere.take()
    lease = side.elsewhere.keeper.find("a2")
    assert lease is not None
    assert (arrived, lease.goal) == ([], Goal.DELETE)


def test_a_message_that_comes_again_before_its_end_is_reported_is_known_only_once(
    side: Side,
) -> None:
    side.receive("a")
    side.elsewhere.deliver()
    side.worker.pull()
    side.worker.release("a")
    side.elsewhere.keeper.let_expire("a")
    again(side)
    side.elsewhere.deliver()
    side.worker.pull()
    assert side.worker.find("a") is None
    assert side.worker.find("a2") is not None
    assert side.known() == ["a"]


def test_an_older_receive_of_a_message_that_is_being_released_is_not_run(side: Side) -> None:
    again(side)
    side.elsewhere.keeper.release("a2")
    assert again(side, 5.0, count=1) is ReceivedAs.LAPSED


def test_a_message_that_has_ended_on_its_way_does_not_arrive(side: Side) -> None:
    arrived: list[Any] = []
    side.worker.on_arrived = arrived.extend
    side.receive("a")
    side.elsewhere.deliver()
    side.elsewhere.keeper.let_expire("a")
    side.worker.pull()
    assert (arrived, side.known()) == ([], [])
