"""The leases that a worker passes to a new keeper when the old one has died."""

from __future__ import annotations

import json
from mmap import mmap

import pytest

from celery_sqs_heartbeat.current.table import LeaseBoard, Table, key_of
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import NOT_DELIVERED
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.link.held_messages import HeldMessage, HeldMessages
from celery_sqs_heartbeat.link.messages import lease_fields, read_lease
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

    def hold(self, handle: str = "h") -> HeldMessage:
        """Have a message handed over."""
        self.board.show(kept(handle))
        return self.holdings.add(kept(handle), {"Body": "b"})

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


def test_a_lease_that_the_last_keeper_knew_to_be_uncertain_is_not_certain_again() -> None:
    worker = Worker()
    holding = worker.hold()
    lease = kept("h")
    lease.is_exclusive = False
    worker.board.show(lease)
    assert worker.holdings.to_resume(0.0) == [(holding, False)]
    assert not holding.lease.is_exclusive


def test_a_lease_without_a_place_is_not_certain_for_a_new_keeper() -> None:
    """What the last keeper knew of it died with it."""
    worker = Worker()
    for number in range(17):
        worker.board.show(kept(f"filling-{number}"))
    holding = worker.holdings.add(kept("late"), {"Body": "b"})
    assert holding.place is None
    assert worker.holdings.to_resume(0.0) == [(holding, False)]
    assert not holding.lease.is_exclusive


def test_a_message_that_was_not_handed_over_is_released_by_the_next_keeper() -> None:
    worker = Worker()
    worker.board.show(kept("h"))
    worker.holdings.keep(kept("h"))
    assert worker.holdings.get("h") is None
    assert len(worker.holdings) == 0
    ((holding, was_releasing),) = worker.holdings.to_resume(NOW)
    assert (holding.name, holding.lease.goal, was_releasing) == ("h", Goal.RELEASE, False)
    assert holding.lease.cause == NOT_DELIVERED
    assert worker.holdings.ending == 1
    worker.holdings.end("h")
    assert worker.holdings.ending == 0


@pytest.mark.parametrize("is_over", [False, True])
def test_a_message_that_was_not_handed_over_is_not_released_twice(is_over: bool) -> None:
    worker = Worker()
    worker.holdings.keep(kept("h"))
    worker.board.show(kept("h", Goal.RELEASE, Action.RELEASE))
    if is_over:
        worker.board.remove(kept("h", Goal.RELEASE))
    resumed = [(each.name, was_releasing) for each, was_releasing in worker.holdings.to_resume(NOW)]
    assert resumed == ([] if is_over else [("h", True)])


def test_a_message_that_was_handed_over_after_all_is_kept() -> None:
    worker = Worker()
    worker.board.show(kept("h"))
    worker.holdings.keep(kept("h"))
    holding = worker.hold()
    # The keeper's word that it has not handed it over may come late.
    worker.holdings.keep(kept("h"))
    assert worker.holdings.to_resume(NOW) == [(holding, False)]
    assert holding.lease.goal is Goal.HOLD


def test_a_message_that_was_received_again_on_its_way_has_its_latest_handle() -> None:
    worker = Worker()
    worker.holdings.keep(kept("h"))
    again = kept("h")
    again.add_handle("h2")
    again.receipt_handle = "h2"
    worker.holdings.keep(again)
    holding = worker.hold()
    assert holding.lease.receipt_handle == "h2"
    assert worker.holdings.get("h") is worker.holdings.get("h2") is holding


def test_a_message_that_was_received_again_before_it_was_handed_over_has_all_its_handles() -> None:
    worker = Worker()
    lease = kept("h")
    worker.board.show(lease)
    lease.add_handle("h2")
    lease.receipt_handle = "h2"
    given = read_lease(json.loads(json.dumps(lease_fields(lease))))
    holding = worker.holdings.add(given, {"Body": "b", "ReceiptHandle": "h"})
    assert worker.holdings.get("h") is worker.holdings.get("h2") is holding
    assert holding.place is not None
    assert holding.lease.handles == ("h", "h2")


def test_a_release_that_may_have_been_sent_is_known_to_every_later_keeper() -> None:
    worker = Worker()
    worker.released()
    worker.board.show(kept("h", Goal.RELEASE, Action.RELEASE))
    assert list(worker.holdings.memory()) == []
    worker.holdings.to_resume(NOW)
    worker.holdings.end("h")
    assert list(worker.holdings.memory()) == [("unanswered", [((QUEUE, "m"), ("h", NOW + 30))])]


def test_a_finished_message_is_known_to_every_later_keeper() -> None:
    worker = Worker()
    worker.hold()
    worker.holdings.done("h", NOW)
    worker.holdings.end("h")
    assert list(worker.holdings.memory()) == [("finished", [(QUEUE, "m")])]


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
