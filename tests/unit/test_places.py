"""The places of a table: each claim has its own until it ends."""

from __future__ import annotations

from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.current.places import Places
from celery_sqs_heartbeat.current.table import REACH, Mark, Record, Table, key_of
from tests.fuzz.shapes import FUZZ

HELD = Record(Mark.HELD, expires_at=1.0, receives=1)


class Seats:
    """A table and its places: one row, or a few."""

    def __init__(self, places: int = REACH) -> None:
        self.table = Table(mmap(-1, Table.size_for(places)))
        self.places = Places(self.table)

    def take(self, handle: str) -> int | None:
        return self.places.take(handle, HELD)

    def mark(self, handle: str) -> Mark:
        return self.table.read(key_of(handle)).mark


@pytest.fixture
def seats() -> Seats:
    return Seats()


def test_a_claim_can_be_read_as_soon_as_it_has_its_place(seats: Seats) -> None:
    assert seats.take("a") is not None
    assert seats.table.read(key_of("a")) == HELD


def test_a_claim_without_room_is_unknown_and_takes_no_place(seats: Seats) -> None:
    places = [seats.take(f"filling-{number}") for number in range(REACH)]
    assert sorted(place for place in places if place is not None) == list(range(REACH))
    assert seats.take("late") is None
    assert seats.table.is_short
    assert seats.mark("late") is Mark.UNKNOWN
    seats.places.free(places[0])
    assert seats.table.is_short
    seats.places.free(None)
    assert not seats.table.is_short


def test_an_ended_claim_is_readable_until_its_place_is_needed(seats: Seats) -> None:
    place = seats.take("a")
    for number in range(REACH - 1):
        seats.take(f"filling-{number}")
    seats.places.free(place)
    assert seats.mark("a") is Mark.HELD
    assert seats.take("b") == place
    assert seats.mark("a") is Mark.GIVEN_BACK


def test_the_place_that_is_free_for_longest_is_taken(seats: Seats) -> None:
    places = [seats.take(f"filling-{number}") for number in range(REACH)]
    for place in (places[5], places[2], places[9]):
        seats.places.free(place)
    assert [seats.take(each) for each in "abc"] == [places[5], places[2], places[9]]


def test_a_claim_that_begins_again_under_its_handle_has_its_place_again(seats: Seats) -> None:
    place = seats.take("a")
    seats.places.free(place)
    assert seats.take("a") == place


def test_a_second_claim_under_a_handle_that_is_taken_has_no_place(seats: Seats) -> None:
    place = seats.take("a")
    assert seats.take("a") is None
    seats.places.free(place)
    seats.places.free(None)
    assert not seats.table.is_short
    assert seats.take("a") == place


@FUZZ
@given(
    places=st.integers(REACH, 2 * REACH),
    changes=st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=150),
)
def test_no_place_has_two_claims_and_none_is_lost(
    places: int, changes: list[tuple[bool, int]]
) -> None:
    seats = Seats(places)
    taken: dict[str, int | None] = {}
    for is_new, which in changes:
        handle = f"handle-{which}"
        if is_new and handle not in taken:
            taken[handle] = seats.take(handle)
        elif not is_new and handle in taken:
            seats.places.free(taken.pop(handle))
        given = [place for place in taken.values() if place is not None]
        assert len(given) == len(set(given))
        assert seats.table.is_short == (None in taken.values())
        for each, place in taken.items():
            assert place is None or seats.mark(each) is Mark.HELD
    for place in taken.values():
        seats.places.free(place)
    assert not seats.table.is_short
    if places == REACH:
        assert None not in [seats.take(f"last-{number}") for number in range(REACH)]
