"""The places of a table: each lease has its own until it ends, also over its keeper's death."""

from __future__ import annotations

from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.current.table import REACH, Flag, LeaseBoard, Mark, Table, key_of
from celery_sqs_heartbeat.leases.lease import Lease
from tests.fuzz.shapes import FUZZ
from tests.support.leases import lease_of


class Seats:
    """A table and its board: one row, or a few."""

    def __init__(self, places: int = REACH) -> None:
        self.table = Table(mmap(-1, Table.size_for(places)))
        self.board = LeaseBoard(self.table)
        self.leases: dict[str, Lease] = {}

    def show(self, handle: str) -> int | None:
        """Show a lease. Return its place."""
        self.board.show(self.leases.setdefault(handle, lease_of(handle)))
        return self.place(handle)

    def remove(self, handle: str) -> None:
        self.board.remove(self.leases.pop(handle))

    def place(self, handle: str) -> int | None:
        return self.table.place_of(key_of(handle))

    def mark(self, handle: str) -> Mark:
        return self.table.read(key_of(handle)).mark

    def replace_keeper(self) -> None:
        """Let the keeper die. Its leases are those of the next one, which has shown none yet."""
        self.board = LeaseBoard(self.table)


@pytest.fixture
def seats() -> Seats:
    return Seats()


def test_a_lease_keeps_its_place_while_it_changes(seats: Seats) -> None:
    place = seats.show("a")
    assert place is not None
    seats.leases["a"].expires_at = 7.0
    assert seats.show("a") == place
    assert seats.table.read(key_of("a")).expires_at == 7.0


def test_a_lease_without_room_is_unknown_and_takes_no_place(seats: Seats) -> None:
    places = [seats.show(f"filling-{number}") for number in range(REACH)]
    assert sorted(place for place in places if place is not None) == list(range(REACH))
    assert seats.show("late") is None
    assert seats.table.is_short
    assert seats.mark("late") is Mark.UNKNOWN
    seats.remove("filling-0")
    assert seats.table.is_short
    seats.remove("late")
    assert not seats.table.is_short


def test_an_ended_lease_is_readable_until_its_place_is_needed(seats: Seats) -> None:
    place = seats.show("a")
    for number in range(REACH - 1):
        seats.show(f"filling-{number}")
    seats.remove("a")
    assert seats.table.read(key_of("a")).flags & Flag.OVER
    assert seats.show("b") == place
    assert seats.place("a") is None


def test_the_place_that_is_free_for_longest_is_taken(seats: Seats) -> None:
    places = [seats.show(f"filling-{number}") for number in range(REACH)]
    for number in (5, 2, 9):
        seats.remove(f"filling-{number}")
    assert [seats.show(each) for each in "abc"] == [places[5], places[2], places[9]]


def test_a_lease_that_begins_again_under_its_handle_has_its_place_again(seats: Seats) -> None:
    place = seats.show("a")
    seats.remove("a")
    assert seats.show("a") == place


def test_a_lease_that_ended_before_it_was_shown_takes_nothing(seats: Seats) -> None:
    seats.board.remove(lease_of("never"))
    assert seats.place("never") is None
    assert not seats.table.is_short


def test_the_leases_of_a_dead_keeper_keep_their_places(seats: Seats) -> None:
    places = {f"lease-{number}": seats.show(f"lease-{number}") for number in range(REACH)}
    seats.replace_keeper()
    assert {handle: seats.show(handle) for handle in places} == places
    assert not seats.table.is_short
    assert seats.show("late") is None


def test_what_a_dead_keeper_has_ended_gives_its_place_to_a_new_lease(seats: Seats) -> None:
    for number in range(REACH):
        seats.show(f"lease-{number}")
    ended = seats.place("lease-3")
    seats.remove("lease-3")
    seats.replace_keeper()
    assert seats.mark("lease-3") is Mark.GIVEN_BACK
    for handle in tuple(seats.leases):
        seats.show(handle)
    assert seats.show("new") == ended
    assert not seats.table.is_short


def test_a_lease_without_a_place_may_get_one_from_the_next_keeper(seats: Seats) -> None:
    for number in range(REACH):
        seats.show(f"lease-{number}")
    seats.show("late")
    seats.remove("lease-3")
    seats.replace_keeper()
    for handle in tuple(seats.leases):
        seats.show(handle)
    assert seats.mark("late") is Mark.HELD
    # Until the new keeper has shown all, one of them may have none.
    assert seats.table.is_short
    seats.board.note_all_shown()
    assert not seats.table.is_short


@FUZZ
@given(
    places=st.integers(REACH, 2 * REACH),
    changes=st.lists(
        st.tuples(st.sampled_from(("show", "remove", "die")), st.integers(0, 40)), max_size=150
    ),
)
def test_no_place_has_two_leases_and_none_is_lost(
    places: int, changes: list[tuple[str, int]]
) -> None:
    seats = Seats(places)
    taken: dict[str, int | None] = {}
    for change, which in changes:
        handle = f"handle-{which}"
        if change == "show" and handle not in taken:
            taken[handle] = seats.show(handle)
        elif change == "remove" and handle in taken:
            del taken[handle]
            seats.remove(handle)
        elif change == "die":
            had = dict(taken)
            seats.replace_keeper()
            taken = {each: seats.show(each) for each in taken}
            seats.board.note_all_shown()
            for each, place in had.items():
                assert place is None or taken[each] == place
        given = [place for place in taken.values() if place is not None]
        assert len(given) == len(set(given))
        assert seats.table.is_short == (None in taken.values())
        for each, place in taken.items():
            assert place is None or seats.mark(each) is Mark.HELD
    for handle in tuple(taken):
        seats.remove(handle)
    assert not seats.table.is_short
    if places == REACH:
        assert None not in [seats.show(f"last-{number}") for number in range(REACH)]
