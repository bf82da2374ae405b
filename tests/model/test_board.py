"""The board shows the book's leases correctly after anything that Hypothesis does to the book."""

from __future__ import annotations

from mmap import mmap

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from celery_sqs_heartbeat.current.table import LeaseBoard, Mark, Record, Table, key_of
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.lease import Lease
from tests.model.machine import BookMachine
from tests.model.test_lease_book import CI, EXAMPLES
from tests.support.scale import scaled

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
