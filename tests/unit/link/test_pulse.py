"""A keeper that writes no ticks is taken to hang, unless its worker itself was stopped."""

from __future__ import annotations

from mmap import mmap

import pytest

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.link.child import LOOK_SECONDS, LivenessMonitor
from celery_sqs_heartbeat.testing import FakeClock


class Watched:
    """A liveness monitor with its clock and its table."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.table = Table(mmap(-1, Table.size_for(REACH)))
        self.begin()

    def begin(self) -> None:
        """Start another keeper, as its attendant does."""
        self.table.tick = 0.0
        self.pulse = LivenessMonitor(self.table, self.clock)

    def tick(self) -> None:
        self.table.tick = self.clock()

    def look(self, after: float = LOOK_SECONDS) -> bool:
        self.clock.advance(after)
        return self.pulse.is_gone()

    def looks(self, count: int) -> list[bool]:
        return [self.look() for _ in range(count)]


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def ticking(watched: Watched) -> Watched:
    watched.tick()
    assert not watched.look()
    return watched


def test_a_keeper_that_ticks_is_at_work(ticking: Watched) -> None:
    for _ in range(100):
        ticking.tick()
        assert not ticking.look()


def test_a_keeper_hangs_after_five_checks_without_a_tick(ticking: Watched) -> None:
    assert ticking.looks(5) == [False, False, False, False, True]


def test_one_tick_restarts_the_count(ticking: Watched) -> None:
    assert ticking.looks(4) == [False] * 4
    ticking.tick()
    assert ticking.looks(6) == [False] * 5 + [True]


def test_a_check_that_comes_late_does_not_count(ticking: Watched) -> None:
    for _ in range(100):
        assert not ticking.look(LOOK_SECONDS + 0.11)
    assert ticking.looks(5)[-1]


def test_a_worker_that_was_stopped_for_hours_counts_only_checks_in_time(ticking: Watched) -> None:
    assert not ticking.look(7200.0)
    assert ticking.looks(4) == [False] * 4
    assert ticking.look()


def test_a_keeper_may_take_half_a_minute_to_start(watched: Watched) -> None:
    assert not any(watched.looks(round(30 / LOOK_SECONDS) - 1))
    assert any(watched.looks(3))


def test_a_late_check_of_a_keeper_that_starts_does_not_count(watched: Watched) -> None:
    assert not watched.look(100.0)
    assert watched.look()


def test_a_new_keeper_is_not_taken_for_the_last(ticking: Watched) -> None:
    assert ticking.looks(5)[-1]
    ticking.begin()
    assert not any(ticking.looks(20))
