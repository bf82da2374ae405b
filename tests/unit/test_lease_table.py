"""The table of leases that a worker's processes share: its leases, and what it shows of them."""

from __future__ import annotations

import time
from dataclasses import replace
from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.current.table import (
    REACH,
    RECORD_BYTES,
    LeaseBoard,
    Mark,
    Record,
    Table,
    key_of,
)
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus, LeaseTerms
from tests.fuzz.shapes import FUZZ
from tests.support.leases import TERMS, lease_of

#: One row: every lease competes for the same places.
SMALLEST = REACH


class Shown:
    """A board, and what it shows of a lease."""

    def __init__(self, places: int = SMALLEST) -> None:
        self.memory = mmap(-1, Table.size_for(places))
        self.table = Table(self.memory)
        self.board = LeaseBoard(self.table)

    def record(self, lease: Lease) -> Record:
        return self.table.read(key_of(lease.handles[0]))

    def mark(self, lease: Lease) -> Mark:
        return self.record(lease).mark

    def fill(self, count: int = SMALLEST) -> list[Lease]:
        leases = [lease_of(f"filling-{number}") for number in range(count)]
        for lease in leases:
            self.board.show(lease)
        return leases


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_a_lease_is_read_as_it_was_shown_last(shown: Shown) -> None:
    lease = lease_of("a", expires_at=1234.5)
    shown.board.show(lease)
    assert shown.record(lease)[:4] == (Mark.HELD, 1234.5, 30.0, 10.0)
    lease.expires_at = 1264.5
    shown.board.show(lease)
    assert shown.record(lease).expires_at == 1264.5


@pytest.mark.parametrize(
    ("status", "mark"),
    [
        (LeaseStatus.OWNED, Mark.HELD),
        (LeaseStatus.EXPIRED, Mark.HELD),
        (LeaseStatus.LOST, Mark.LOST),
        (LeaseStatus.CAPPED, Mark.CAPPED),
        (LeaseStatus.REFUSED, Mark.REFUSED),
    ],
)
def test_the_status_of_a_lease_is_shown(shown: Shown, status: LeaseStatus, mark: Mark) -> None:
    lease = lease_of("a")
    lease.status = status
    shown.board.show(lease)
    assert shown.mark(lease) is mark


@pytest.mark.parametrize(
    ("goal", "while_it_lasts", "afterwards"),
    [
        (Goal.HOLD, Mark.HELD, Mark.GIVEN_BACK),
        (Goal.RELEASE, Mark.GIVEN_BACK, Mark.GIVEN_BACK),
        (Goal.DELETE, Mark.ACKED, Mark.ACKED),
    ],
)
def test_an_ended_lease_shows_how_it_ended(
    shown: Shown, goal: Goal, while_it_lasts: Mark, afterwards: Mark
) -> None:
    lease = lease_of("a")
    lease.goal = goal
    shown.board.show(lease)
    assert shown.mark(lease) is while_it_lasts
    shown.board.remove(lease)
    assert shown.mark(lease) is afterwards


def test_a_task_that_opted_out_sees_its_lease_until_its_end(shown: Shown) -> None:
    lease = lease_of("a", terms=replace(TERMS, extend=False))
    shown.board.show(lease)
    assert shown.mark(lease) is Mark.OPTED_OUT


def test_a_redelivery_continues_the_claim(shown: Shown) -> None:
    lease = lease_of("a", expires_at=10.0)
    shown.board.show(lease)
    lease.take_receive(
        "b", receive_count=2, sent_at=8.0, expires_at=38.0, hidden_until=38.0, hidden_for=30
    )
    shown.board.show(lease)
    assert shown.table.read(key_of("a")).expires_at == 38.0


def test_a_claim_stays_lost_when_another_on_the_same_message_follows_it(shown: Shown) -> None:
    first, second = lease_of("a"), lease_of("b")
    assert first.key == second.key
    shown.board.show(first)
    shown.board.remove(first)
    shown.board.show(second)
    assert shown.mark(first) is Mark.GIVEN_BACK
    assert shown.mark(second) is Mark.HELD


def test_a_claim_that_begins_again_under_its_handle_is_not_confused_with_the_earlier_one(
    shown: Shown,
) -> None:
    shown.board.show(lease_of("before"))
    past, present = lease_of("a"), lease_of("a")
    shown.board.show(past)
    shown.board.remove(past)
    shown.board.show(present)
    assert shown.mark(present) is Mark.HELD


def test_how_a_lease_ended_is_known_until_its_place_is_needed(shown: Shown) -> None:
    ended = lease_of("a")
    ended.goal = Goal.DELETE
    shown.board.show(ended)
    shown.board.remove(ended)
    shown.fill(SMALLEST - 1)
    assert shown.mark(ended) is Mark.ACKED
    shown.board.show(lease_of("the last"))
    assert shown.mark(ended) is Mark.GIVEN_BACK


def test_the_place_that_is_free_for_longest_is_taken_first(shown: Shown) -> None:
    first, second, *_ = shown.fill()
    for lease in (second, first):
        lease.goal = Goal.DELETE
        shown.board.remove(lease)
    shown.board.show(lease_of("new"))
    assert shown.mark(second) is Mark.GIVEN_BACK
    assert shown.mark(first) is Mark.ACKED


def test_in_a_full_table_no_lease_counts_as_lost(shown: Shown) -> None:
    leases = shown.fill()
    late = lease_of("late")
    shown.board.show(late)
    assert shown.mark(late) is Mark.UNKNOWN
    assert {shown.mark(lease) for lease in leases} == {Mark.HELD}

    shown.board.remove(leases.pop())
    assert shown.mark(late) is Mark.UNKNOWN
    shown.board.remove(late)
    assert not shown.table.is_short


def test_a_lease_that_ends_without_a_place_leaves_nothing_behind(shown: Shown) -> None:
    shown.fill()
    late = lease_of("late")
    shown.board.show(late)
    shown.board.remove(late)
    assert not shown.table.is_short
    assert shown.mark(late) is Mark.GIVEN_BACK


def test_a_record_that_is_half_written_is_not_read(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of("a", expires_at=1.0)
    shown.board.show(lease)
    before = shown.memory[:]
    lease.expires_at, lease.status = 2.0, LeaseStatus.LOST
    shown.board.show(lease)
    after, slept = shown.memory[:], 0.0

    def sleep(seconds: float) -> None:
        # Its writer gets its CPU back after 50 ms.
        nonlocal slept
        slept += seconds
        if slept >= 0.05:
            shown.memory[:] = after

    # A CPU writes word by word, and another CPU may see the words in any order.
    changed = [at for at in range(0, len(after), 4) if before[at : at + 4] != after[at : at + 4]]
    assert len(changed) >= 3
    for at in changed:
        shown.memory[:] = before
        shown.memory[at : at + 4] = after[at : at + 4]
        assert shown.mark(lease) is Mark.UNKNOWN
    monkeypatch.setattr(time, "sleep", sleep)
    assert shown.mark(lease) is Mark.LOST


def test_a_receipt_handle_may_be_any_string(shown: Shown) -> None:
    lease = lease_of("\ud800" + "x" * 2000)
    shown.board.show(lease)
    assert shown.mark(lease) is Mark.HELD


def test_a_record_fits_a_line_of_the_cache() -> None:
    assert len(Record(Mark.HELD).pack(key_of("a"))) == RECORD_BYTES == 64


class Silent:
    """An SQS whose answers are useless."""

    def send(self, call: Call, may_send: object) -> list[Outcome]:
        return [Outcome.UNKNOWN] * len(call.entries)


def test_a_keeper_still_shows_changes_after_it_was_stopped(shown: Shown) -> None:
    keeper = ThreadKeeper(Silent(), terms=LeaseTerms.of(3_600), board=shown.board)
    keeper.start()
    for handle in ("a", "b"):
        keeper.receive("https://q", {"MessageId": handle, "ReceiptHandle": handle})
        assert shown.table.read(key_of(handle)).mark is Mark.HELD
        keeper.let_expire(handle)
        assert shown.table.read(key_of(handle)).mark is Mark.GIVEN_BACK
        keeper.stop()


changes = st.tuples(
    st.sampled_from(["show", "show", "remove"]),
    st.integers(0, 3 * SMALLEST),
    st.sampled_from(LeaseStatus),
    st.sampled_from(Goal),
)


@FUZZ
@given(places=st.integers(SMALLEST, 2 * SMALLEST), changes=st.lists(changes, max_size=120))
def test_the_table_behaves_like_a_dict(
    places: int, changes: list[tuple[str, int, LeaseStatus, Goal]]
) -> None:
    shown = Shown(places)
    live: dict[str, Lease] = {}
    ended: dict[str, Lease] = {}
    most = 0
    for number, (change, which, status, goal) in enumerate(changes):
        handle = f"handle-{which}"
        if change == "show":
            ended.pop(handle, None)
            lease = live.setdefault(handle, lease_of(handle))
            lease.status, lease.goal, lease.expires_at = status, goal, float(number)
            shown.board.show(lease)
        elif handle in live:
            ended[handle] = live.pop(handle)
            shown.board.remove(ended[handle])
        most = max(most, len(live))
        without_place = [lease for lease in live.values() if shown.mark(lease) is Mark.UNKNOWN]
        assert shown.table.is_short == bool(without_place)
        assert most > SMALLEST or not without_place
        for lease in live.values():
            assert lease in without_place or shown.record(lease) == Record.of(lease)
        for lease in ended.values():
            assert shown.mark(lease) in {Mark.GIVEN_BACK, Mark.ACKED, Mark.UNKNOWN}
