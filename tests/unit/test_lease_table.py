"""The table of leases in shared memory: what a task reads of its lease is never half or another's.

Each lease has its place until it ends, also over its keeper's death. In a full table none counts as
lost.
"""

from __future__ import annotations

import time
from dataclasses import replace
from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.current.table import (
    REACH,
    Flag,
    LeaseBoard,
    Mark,
    Record,
    Table,
    key_of,
)
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from tests.fuzz.shapes import FUZZ
from tests.support.leases import TERMS, lease_of


class Shown:
    """A table, its board, and the leases that it shows. By default all compete for one row."""

    def __init__(self, places: int = REACH) -> None:
        self.memory = mmap(-1, Table.size_for(places))
        self.table = Table(self.memory)
        self.leases: dict[str, Lease] = {}
        self.replace_keeper()

    def replace_keeper(self) -> None:
        """Let the keeper die. Its leases are those of the next one, which has shown none yet."""
        self.board = LeaseBoard(self.table)

    def show(self, *handles: str) -> int | None:
        """Show leases. Return the place of the last."""
        for handle in handles:
            self.board.show(self.leases.setdefault(handle, lease_of(handle)))
        return self.place(handles[-1])

    def show_all(self) -> None:
        """Do what a new keeper does first."""
        for handle in self.leases:
            self.show(handle)
        self.board.note_all_shown()

    def remove(self, handle: str) -> None:
        self.board.remove(self.leases.pop(handle))

    def place(self, handle: str) -> int | None:
        return self.table.place_of(key_of(handle))

    def record(self, handle: str) -> Record:
        return self.table.read(key_of(handle))

    def mark(self, handle: str) -> Mark:
        return self.record(handle).mark

    def fill(self, count: int = REACH) -> list[int | None]:
        return [self.show(f"f{number}") for number in range(count)]


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_a_lease_is_read_from_its_place_as_it_was_shown_last(shown: Shown) -> None:
    place = shown.show("a")
    lease = shown.leases["a"]
    lease.expires_at, lease.hidden_until = 1264.5, 1270.0
    assert shown.show("a") == place
    assert shown.record("a") == Record(Mark.HELD, 1264.5, 30.0, 10.0, Flag.CERTAIN, 1270.0)
    # A redelivery continues the claim.
    lease.add_handle("b")
    lease.receipt_handle, lease.expires_at = "b", 38.0
    shown.show("a")
    assert shown.record("a").expires_at == 38.0


@pytest.mark.parametrize(
    ("changes", "mark", "afterwards"),
    [
        ({}, Mark.HELD, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.EXPIRED}, Mark.HELD, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.LOST}, Mark.LOST, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.CAPPED}, Mark.CAPPED, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.REFUSED}, Mark.REFUSED, Mark.GIVEN_BACK),
        ({"terms": replace(TERMS, extend=False)}, Mark.OPTED_OUT, Mark.GIVEN_BACK),
        ({"goal": Goal.RELEASE}, Mark.GIVEN_BACK, Mark.GIVEN_BACK),
        ({"goal": Goal.DELETE}, Mark.ACKED, Mark.ACKED),
    ],
)
def test_a_lease_shows_its_state_and_how_it_ended_until_its_place_is_needed(
    shown: Shown, changes: dict[str, object], mark: Mark, afterwards: Mark
) -> None:
    place = shown.show("a")
    for name, value in changes.items():
        setattr(shown.leases["a"], name, value)
    shown.show("a")
    assert shown.mark("a") is mark
    shown.remove("a")
    assert shown.mark("a") is afterwards
    assert shown.record("a").flags & Flag.OVER
    shown.fill(REACH - 1)
    assert shown.mark("a") is afterwards
    assert shown.show("last") == place
    assert (shown.place("a"), shown.mark("a")) == (None, Mark.GIVEN_BACK)


def test_a_claim_stays_lost_when_another_on_the_same_message_follows_it(shown: Shown) -> None:
    shown.show("before", "a")
    shown.remove("a")
    shown.show("b")
    assert lease_of("a").key == lease_of("b").key
    assert (shown.mark("a"), shown.mark("b")) == (Mark.GIVEN_BACK, Mark.HELD)
    # One that begins again under its handle has its place again.
    place = shown.place("a")
    assert shown.show("a") == place
    assert shown.mark("a") is Mark.HELD


def test_in_a_full_table_no_lease_counts_as_lost(shown: Shown) -> None:
    places = shown.fill()
    assert sorted(place for place in places if place is not None) == list(range(REACH))
    assert shown.show("late") is None
    assert shown.mark("late") is Mark.UNKNOWN
    assert {shown.mark(f"f{number}") for number in range(REACH)} == {Mark.HELD}
    shown.remove("f0")
    assert shown.table.is_short
    shown.remove("late")
    assert not shown.table.is_short
    assert shown.mark("late") is Mark.GIVEN_BACK
    # One that ended before it was shown takes nothing.
    shown.board.remove(lease_of("never"))
    assert (shown.place("never"), shown.table.is_short) == (None, False)


def test_a_record_that_is_half_written_is_not_read(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.show("a")
    before = shown.memory[:]
    lease = shown.leases["a"]
    lease.expires_at, lease.status = 2.0, LeaseStatus.LOST
    shown.show("a")
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
        assert shown.mark("a") is Mark.UNKNOWN
    monkeypatch.setattr(time, "sleep", sleep)
    assert shown.mark("a") is Mark.LOST


changes = st.tuples(
    st.sampled_from(["show", "show", "show", "remove", "die"]),
    st.integers(0, 3 * REACH),
    st.sampled_from(LeaseStatus),
    st.sampled_from(Goal),
)


@FUZZ
@given(places=st.integers(REACH, 2 * REACH), changes=st.lists(changes, max_size=100))
def test_the_table_behaves_like_a_dict_also_over_deaths(
    places: int, changes: list[tuple[str, int, LeaseStatus, Goal]]
) -> None:
    shown, ended, most = Shown(places), set[str](), 0
    for number, (change, which, status, goal) in enumerate(changes):
        handle = f"handle-{which}"
        if change == "show":
            ended.discard(handle)
            lease = shown.leases.setdefault(handle, lease_of(handle))
            lease.status, lease.goal, lease.expires_at = status, goal, float(number)
            shown.show(handle)
        elif change == "die":
            had = {each: shown.place(each) for each in shown.leases}
            shown.replace_keeper()
            shown.show_all()
            for each, place in had.items():
                assert place in (None, shown.place(each))
        elif handle in shown.leases:
            ended.add(handle)
            shown.remove(handle)
        most = max(most, len(shown.leases))
        taken = [shown.place(each) for each in shown.leases if shown.mark(each) is not Mark.UNKNOWN]
        assert len(taken) == len(set(taken))
        is_short = len(taken) < len(shown.leases)
        assert shown.table.is_short == is_short
        assert most > REACH or not is_short
        for each, lease in shown.leases.items():
            assert shown.record(each) == Record.of(lease) or shown.mark(each) is Mark.UNKNOWN
        assert {shown.mark(each) for each in ended} <= {Mark.GIVEN_BACK, Mark.ACKED, Mark.UNKNOWN}
