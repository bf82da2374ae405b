"""The lease book keeps its promises after anything that Hypothesis does to it.

So does the board that shows its leases. Faults that the machine has found follow, each as the
shortest trace that shows it.
"""

from __future__ import annotations

import os
from mmap import mmap

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from celery_sqs_heartbeat.current.table import LeaseBoard, Mark, Record, Table, key_of
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Lease, LeaseStatus
from tests.model.machine import BookMachine
from tests.support.environment import scaled
from tests.unit.book_harness import BookHarness, summary

#: `MODEL_EXAMPLES=20000 pytest tests/model` tries more, with other examples each time.
EXAMPLES = os.environ.get("MODEL_EXAMPLES")

CI = settings(
    max_examples=int(EXAMPLES or scaled(200, 1000)),
    stateful_step_count=60,
    derandomize=not EXAMPLES,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestLeaseBook = BookMachine.TestCase
TestLeaseBook.settings = CI

#: Fewer places than the leases of a long run, so some leases have no place for a while.
PLACES = 24


class BoardMachine(BookMachine):
    """The machine of the book, with a board that shows the book's leases."""

    @initialize(jitter=st.sampled_from((0.0, 1.0)))
    def begin(self, jitter: float) -> None:
        super().begin(jitter)
        self.table = Table(mmap(-1, Table.size_for(PLACES)))
        self.book = LeaseBook(lambda: jitter, LeaseBoard(self.table))
        self.met: dict[Lease, None] = {}

    @invariant()
    def the_board_shows_what_the_book_holds(self) -> None:
        held = list(self.book)
        self.met.update(dict.fromkeys(held))
        short = False
        for lease in self.met:
            record = self.table.read(key_of(lease.handles[0]))
            if record.mark is Mark.UNKNOWN:
                short = True
            elif lease in held:
                assert record == Record.of(lease)
            else:
                assert record.mark in {Mark.GIVEN_BACK, Mark.ACKED}
        assert not short or self.table.is_short


TestBoard = BoardMachine.TestCase
TestBoard.settings = settings(CI, max_examples=int(EXAMPLES or scaled(50, 150)))


def test_a_task_that_succeeds_after_a_release_that_still_waits_for_an_extension_is_deleted() -> (
    None
):
    # The extension is under way, but the release is not. It is not too late for a delete.
    booking = BookHarness()
    booking.receive("a")
    booking.now = 1020.0
    extension = booking.one_call()
    booking.book.release("a", 0, booking.now)
    booking.book.done("a", booking.now)
    booking.apply_results(extension, Outcome.DONE)
    booking.now += 0.05
    assert summary(booking.one_call()) == [("a", "delete", 0)]


def test_a_message_is_not_called_deleted_before_a_delete_was_sent() -> None:
    # SQS answers MessageNotInflight to the extension of a lease that has just expired. The
    # message is visible, and a delete by this handle would work.
    booking = BookHarness()
    booking.receive("a")
    booking.now = 1020.0
    extension = booking.one_call()
    booking.book.done("a", booking.now)
    booking.apply_results(extension, Outcome.LOST)
    assert EventKind.MESSAGE_DELETED not in booking.kinds()
    booking.now += 0.05
    assert summary(booking.one_call()) == [("a", "delete", 0)]


def test_a_lease_that_is_lost_while_its_release_waits_is_not_released() -> None:
    # With the stale handle the release would end the lease of the new owner.
    booking = BookHarness()
    booking.receive("a")
    booking.now = 1020.0
    extension = booking.one_call()
    booking.book.release("a", 0, booking.now)
    booking.apply_results(extension, Outcome.LOST)
    assert booking.plan() == []
    assert booking.book.ending == 0


def test_no_extension_follows_a_release_even_if_the_task_succeeds_after_all() -> None:
    # "After a release no extension follows, ever": nor after one that was throttled.
    booking = BookHarness()
    booking.receive("a")
    booking.now = 1019.0
    booking.book.release("a", 0, booking.now)
    booking.apply_results(booking.one_call(), Outcome.THROTTLED)
    booking.book.done("a", booking.now)
    booking.refuse_deletes(until=1035.0)


def test_a_queue_that_refuses_one_of_two_calls_is_probed_though_the_other_was_unclear() -> None:
    booking = BookHarness()
    for number in range(30):
        booking.receive(f"m{number}")
    booking.now = 1020.0
    first, second, third = booking.plan()
    booking.apply_results(first, Outcome.DENIED)
    booking.apply_results(second, Outcome.UNKNOWN)
    booking.apply_results(third, Outcome.DENIED)
    booking.now += 0.5
    assert len(booking.one_call().entries) == 1


def test_a_lost_lease_does_not_become_ours_when_a_permission_is_restored() -> None:
    booking = BookHarness()
    booking.receive("lost")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.LOST)
    booking.now = 1025.0
    booking.receive("refused")
    booking.receive("granted")
    booking.now = 1045.0
    booking.apply_results(booking.one_call(), Outcome.DENIED, Outcome.DONE)
    assert booking.lease("lost").status is LeaseStatus.LOST
