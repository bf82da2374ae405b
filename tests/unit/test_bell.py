"""The wake-up event of a thread."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from celery_sqs_heartbeat.common.auto_reset_event import AutoResetEvent
from tests.support.waiting import PATIENCE


def test_a_set_event_makes_one_wait_return_at_once() -> None:
    bell = AutoResetEvent()
    bell.set()
    bell.set()
    assert bell.wait(PATIENCE)
    assert not bell.wait(0)
    assert not bell.wait(-1)


def test_setting_the_event_wakes_the_waiting_thread_regardless_of_its_timeout() -> None:
    bell = AutoResetEvent()
    threading.Timer(0.01, bell.set).start()
    assert bell.wait(float("inf"))


@pytest.fixture
def handled() -> Iterator[list[AutoResetEvent]]:
    """Events that a signal's handler sets, again and again."""
    bells: list[AutoResetEvent] = []
    before = signal.signal(signal.SIGALRM, lambda *_: [bell.set() for bell in bells])
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    yield bells
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signals_handler_may_set_the_event_while_it_is_being_set(
    handled: list[AutoResetEvent],
) -> None:
    bell = AutoResetEvent()
    handled.append(bell)
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        bell.set()
    assert bell.wait(0)
