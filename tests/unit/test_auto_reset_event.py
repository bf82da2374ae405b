"""The wake-up event of a thread."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from celery_sqs_heartbeat.common.threads import AutoResetEvent
from tests.support.waiting import PATIENCE


def test_a_set_event_makes_one_wait_return_at_once() -> None:
    event = AutoResetEvent()
    event.set()
    event.set()
    assert event.wait(PATIENCE)
    assert not event.wait(0)
    assert not event.wait(-1)


def test_setting_the_event_wakes_the_waiting_thread_regardless_of_its_timeout() -> None:
    event = AutoResetEvent()
    threading.Timer(0.01, event.set).start()
    assert event.wait(float("inf"))


@pytest.fixture
def handled() -> Iterator[list[AutoResetEvent]]:
    """Events that a signal's handler sets, again and again."""
    events: list[AutoResetEvent] = []
    before = signal.signal(signal.SIGALRM, lambda *_: [event.set() for event in events])
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    yield events
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signals_handler_may_set_the_event_while_it_is_being_set(
    handled: list[AutoResetEvent],
) -> None:
    event = AutoResetEvent()
    handled.append(event)
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        event.set()
    assert event.wait(0)
