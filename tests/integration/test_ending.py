"""A thread of its own reads the polls that are open when a worker ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from kombu.asynchronous.http import Client, Request
from vine import promise

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from celery_sqs_heartbeat.transport.last_polls import LastPolls
from celery_sqs_heartbeat.transport.poll import Poll, awaited_until
from celery_sqs_heartbeat.transport.poll_sending import sending_for
from celery_sqs_heartbeat.transport.uninterrupted_curl import guard_curl
from tests.support.insides import add_poll, is_over, read_answers, uses_curl
from tests.support.waiting import PATIENCE, wait_until


@pytest.mark.parametrize(
    ("taken_over_at", "waits_at", "seconds"),
    [
        pytest.param(0.0, 0.0, 23.5, id="the longest poll"),
        pytest.param(1_000.0, 1_000.0, 3.0, id="a task without a pool outlasted the poll"),
        pytest.param(0.0, 1_000.0, 3.0, id="a stall after the signal"),
    ],
)
def test_a_worker_waits_beyond_the_end_of_a_poll_and_from_now_on_if_that_has_passed(
    monkeypatch: pytest.MonkeyPatch, taken_over_at: float, waits_at: float, seconds: float
) -> None:
    now = taken_over_at
    monkeypatch.setattr(clock, "now", lambda: now)
    waits: list[float] = []

    class Event(threading.Event):
        def wait(self, timeout: Any = None) -> bool:
            waits.append(timeout)
            return True

    monkeypatch.setattr(threading, "Event", Event)
    polls = LastPolls(None, [Poll(queue="q", url="url", sent_at=0.0, waits=20, is_sent=True)])
    now = waits_at
    polls.wait()
    assert waits == [seconds]


def test_a_poll_that_was_given_up_is_not_awaited() -> None:
    given_up = Poll(queue="q", url="url", sent_at=0.0, waits=20, is_sent=True, is_given_up=True)
    assert awaited_until([given_up], 5.0) == 8.0


class Always:
    """Allows a request, and waits for its answer indefinitely."""

    def may_send(self) -> bool:
        return True

    def is_aborted(self) -> bool:
        return False

    def needs_new_connection(self) -> bool:
        return False

    def prepared(self) -> None:
        """Do nothing."""


@pytest.fixture
def client() -> Iterator[Client]:
    """kombu's client for polls, on an event loop that does not run."""
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    made = Client(hub)
    try:
        if not uses_curl(made):
            pytest.skip("kombu 5.5 blocks in each poll")
        yield made
    finally:
        hub.close()
        set_event_loop(before)


def open_poll() -> Poll:
    return Poll(queue="q", url="url", sent_at=clock.now(), waits=20, is_sent=True)


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:kombu")
def test_of_two_answers_that_arrive_together_one_is_read_while_the_other_is_handled(
    client: Client,
) -> None:
    # From two queues. A soft shutdown may wait in the very frame that handles the first.
    working = SignalSafeLock()
    guard_curl(client, working)
    polling = sending_for(SimpleNamespace(_httpclient=client), Always(), patience=PATIENCE)
    readers: list[int] = []
    second = threading.Event()

    def take(_: Any) -> None:
        readers.append(threading.get_ident())
        if len(readers) == 2:
            second.set()
            return
        with working.opened():
            LastPolls(client, [open_poll()])
            assert second.wait(PATIENCE)

    with SimulatedServer() as server:
        for _ in range(2):
            add_poll(polling, Request(server.url, on_ready=promise(take)))
        wait_until(lambda: is_over(client))
        read_answers(client)
    assert len(set(readers)) == 2


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:kombu")
def test_the_last_polls_are_read_even_if_the_signal_interrupted_the_writing_of_a_log_line(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="celery_sqs_heartbeat")
    with caplog.handler.lock:  # type: ignore[union-attr]
        polls = LastPolls(client, [open_poll()])
        polls.wait()
    assert "receiving ends" in caplog.text
    assert "is not answered yet" not in caplog.text
