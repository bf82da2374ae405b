"""The leases that a worker passes to a new keeper when the old one has died."""

from __future__ import annotations

from mmap import mmap

import pytest

from celery_sqs_heartbeat.current.places import LeaseBoard
from celery_sqs_heartbeat.current.table import Table, key_of
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.link.held_message import HeldMessage
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from tests.support.board import Board

QUEUE = "https://sqs/1/q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
NOW = 1000.0


class Worker:
    """A worker that holds one message, and the records that its keeper writes about it."""

    def __init__(self, places: int = 16) -> None:
        self.memory = mmap(-1, Table.size_for(places))
        self.holdings = HeldMessages(Table(self.memory))
        self.board = LeaseBoard(Table(self.memory))

    def receive(self, handle: str = "h", *, sent_at: float = NOW, at: float = NOW) -> ReceivedAs:
        receipt, _ = self.holdings.receive(
            Receive(
                queue_url=QUEUE,
                message_id="m",
                receipt_handle=handle,
                receive_count=1,
                hidden_for=30,
                sent_at=sent_at,
                arrived_at=at,
            ),
            TERMS,
        )
        return receipt

    def hold(self) -> HeldMessage:
        self.receive()
        holding = self.holdings.get("h")
        assert holding is not None
        self.board.assign("h", holding.place)
        self.board.show(kept("h"))
        return holding

    def released(self) -> HeldMessage:
        holding = self.hold()
        self.holdings.release("h", 0, NOW, "")
        return holding


def kept(handle: str, goal: Goal = Goal.HOLD, pending: Action | None = None) -> Lease:
    return Lease(
        queue_url=QUEUE,
        message_id="m",
        terms=TERMS,
        held_since=NOW,
        receipt_handle=handle,
        expires_at=NOW + 30,
        last_timeout=30,
        goal=goal,
        pending=pending,
    )


def test_a_release_that_was_not_sent_is_sent_by_the_new_keeper() -> None:
    worker = Worker()
    holding = worker.released()
    worker.board.show(kept("h", Goal.RELEASE))
    assert worker.holdings.to_resume(0.0) == [(holding, False)]


def test_a_release_that_was_planned_may_have_been_sent() -> None:
    worker = Worker()
    holding = worker.released()
    worker.board.show(kept("h", Goal.RELEASE, Action.RELEASE))
    assert worker.holdings.to_resume(0.0) == [(holding, True)]


def test_an_answered_release_has_ended_even_if_the_worker_does_not_know() -> None:
    worker = Worker()
    worker.released()
    worker.board.show(kept("h", Goal.RELEASE, Action.RELEASE))
    worker.board.remove(kept("h", Goal.RELEASE))
    assert worker.holdings.to_resume(0.0) == []
    assert worker.holdings.ending == 0


@pytest.mark.parametrize("is_over", [False, True])
def test_a_release_that_the_keeper_sent_on_its_own_is_not_sent_again(is_over: bool) -> None:
    """Found by the simulation (storm-fifo-apart 4): a message behind one that is released."""
    worker = Worker()
    holding = worker.hold()
    worker.board.show(kept("h", Goal.RELEASE, Action.RELEASE))
    if is_over:
        worker.board.remove(kept("h", Goal.RELEASE))
    assert worker.holdings.to_resume(0.0) == [(holding, True)]
    assert holding.lease.goal is Goal.RELEASE
    assert worker.holdings.ending == 1


def test_a_release_with_a_half_written_record_may_have_been_sent() -> None:
    worker = Worker()
    holding = worker.released()
    at = worker.memory.find(key_of("h"))
    worker.memory[at + 20] ^= 1
    assert worker.holdings.to_resume(0.0) == [(holding, True)]


def test_a_lease_that_the_worker_knows_to_be_uncertain_is_not_certain_again() -> None:
    worker = Worker()
    holding = worker.hold()
    assert worker.receive("late", sent_at=NOW + 1, at=NOW + 40) is ReceivedAs.LAPSED
    assert worker.holdings.to_resume(0.0) == [(holding, False)]
    assert not holding.lease.is_exclusive


def test_a_new_keeper_knows_how_long_the_last_extension_hides_a_message() -> None:
    worker = Worker()
    holding = worker.hold()
    lease = kept("h")
    lease.hidden_until = NOW + 55.5
    worker.board.show(lease)
    assert worker.holdings.to_resume(0.0) == [(holding, False)]
    assert holding.lease.hidden_until == NOW + 55.5


@pytest.mark.parametrize("was_releasing", [True, False])
def test_the_end_of_a_lease_that_expires_when_it_is_resumed_is_shown(was_releasing: bool) -> None:
    shown: list[str] = []

    class Noting(Board):
        def remove(self, lease: Lease) -> None:
            super().remove(lease)
            shown.append(lease.message_id)

    book = LeaseBook(jitter=lambda: 1.0, board=Noting())
    lease = kept("h", Goal.RELEASE)
    book.resume(lease, NOW if was_releasing else NOW + 31, was_releasing=was_releasing)
    assert shown == ["m"]
    assert book.ending == 0
