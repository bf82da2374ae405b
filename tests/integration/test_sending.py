"""When the event loop's client sends what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from kombu.asynchronous.http import Client, Request

from celery_sqs_heartbeat.transport.sending import guard_sending
from tests.support.proxy import FaultProxy
from tests.support.waiting import wait_until


@pytest.fixture
def hub() -> Iterator[Hub]:
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    yield hub
    hub.close()
    set_event_loop(before)


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:kombu")
@pytest.mark.parametrize("ends", [False, True], ids=["the worker goes on", "it ends meanwhile"])
def test_a_request_is_sent_in_the_next_tick_unless_the_worker_has_come_to_its_end_by_then(
    hub: Hub, proxy: FaultProxy, ends: bool
) -> None:
    client, answers, is_ending = Client(hub), [], False

    def note(response: Any) -> None:
        answers.append(response.error)

    guard_sending(client, lambda: not is_ending)
    request = Request(proxy.url, method="POST", body=b"{}", on_ready=note)
    request.headers["X-Amz-Target"] = "AmazonSQS.ListQueues"
    request.headers["Content-Type"] = "application/x-amz-json-1.0"
    client.add_request(request)
    is_ending = ends
    ticks = hub.create_loop()

    def tick_until_answered() -> bool:
        next(ticks)
        return bool(answers)

    wait_until(tick_until_answered)
    # kombu 5.5 has no curl, and has sent it before it comes back to us.
    is_sent = not ends or not hasattr(client, "_curls")
    assert [error is None for error in answers] == [is_sent]
    assert len(proxy.calls("ListQueues")) == is_sent
