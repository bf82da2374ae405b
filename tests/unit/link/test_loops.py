"""A stall of a worker's event loop is logged once, and so is its end."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.link.loops import STALL_SECONDS, WorkerLoop

#: How long the loops here may wait for messages, in seconds.
WAITS = 20.0


class Watched:
    """A loop whose time the test sets."""

    def __init__(self, *, runs_tasks: bool = False) -> None:
        self.now = 100.0
        self.loop = WorkerLoop(lambda: self.now)
        self.loop.watch(waits=WAITS, runs_tasks=runs_tasks)

    def is_stalled_after(self, seconds: float, *, has_running: bool = False) -> bool:
        self.now += seconds
        self.loop.look(has_running=has_running)
        return self.loop.is_stalled


def test_a_loop_may_take_the_announced_wait_and_ten_seconds_more() -> None:
    watched = Watched()
    assert not watched.is_stalled_after(WAITS + STALL_SECONDS)
    assert watched.is_stalled_after(0.1)


def test_a_stall_and_its_end_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    assert watched.is_stalled_after(WAITS + STALL_SECONDS + 1)
    assert watched.is_stalled_after(5)
    watched.loop.tick()
    assert not watched.is_stalled_after(0)
    assert not watched.is_stalled_after(1)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "has been stalled for 31.0 s" in caplog.messages[0]
    assert "continues after 36.0 s" in caplog.messages[1]


def test_a_loop_that_runs_tasks_may_be_late_only_during_a_task() -> None:
    watched = Watched(runs_tasks=True)
    assert not watched.is_stalled_after(10_000, has_running=True)
    assert watched.is_stalled_after(0, has_running=False)


def test_running_tasks_do_not_excuse_a_loop_that_runs_none() -> None:
    assert Watched().is_stalled_after(10_000, has_running=True)


def test_reading_the_state_between_two_checks_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    watched.now += 10_000
    assert not watched.loop.is_stalled
    assert watched.loop.age == 10_000
    assert not caplog.messages


def test_the_loop_of_a_worker_that_ends_is_not_watched() -> None:
    watched = Watched()
    assert watched.is_stalled_after(10_000)
    watched.loop.watch(waits=None, runs_tasks=False)
    assert not watched.is_stalled_after(10_000)
    assert watched.loop.age is None
    watched.loop.tick()
    assert watched.loop.age is None
