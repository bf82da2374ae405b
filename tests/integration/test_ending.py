"""The polls that are open when a worker ends, read on a thread of their own."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from kombu.asynchronous.http import Client

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.last_polls import LastPolls
from celery_sqs_heartbeat.transport.poll import Poll
from tests.support.insides import uses_curl


def test_a_poll_whose_time_is_over_is_waited_for_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As of a worker without a pool, which was in a task for longer than its poll.
    monkeypatch.setattr(clock, "now", lambda: 1_000.0)
    waits: list[float] = []

    class Event(threading.Event):
        def wait(self, timeout: Any = None) -> bool:
            waits.append(timeout)
            return True

    monkeypatch.setattr(threading, "Event", Event)
    LastPolls(None, [Poll(queue="q", url="url", sent_at=0.0, waits=20, is_sent=True)]).wait()
    assert waits == [1.5]


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:kombu")
def test_the_last_polls_are_read_though_a_signal_came_amid_the_writing_of_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="celery_sqs_heartbeat")
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    try:
        client = Client(hub)
        if not uses_curl(client):
            pytest.skip("kombu 5.5 blocks in each poll")
        with caplog.handler.lock:  # type: ignore[union-attr]
            polls = LastPolls(
                client, [Poll(queue="q", url="url", sent_at=clock.now(), waits=20, is_sent=True)]
            )
            polls.wait()
        assert "receiving ends" in caplog.text
        assert "is not answered yet" not in caplog.text
    finally:
        hub.close()
        set_event_loop(before)
