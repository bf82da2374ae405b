"""When the event loop's client sends a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from kombu.asynchronous.http import Client, Request

from celery_sqs_heartbeat.transport.poll_sending import sending_for
from tests.support.faults import never_answer
from tests.support.insides import uses_curl
from tests.support.proxy import FaultProxy
from tests.support.waiting import wait_until


@pytest.fixture
def hub() -> Iterator[Hub]:
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    yield hub
    hub.close()
    set_event_loop(before)


class Watcher:
    """Allows a request until `is_ending`, and aborts it after `is_over`.

    It uses no open connection after `is_wary`.
    """

    is_ending = False
    is_over = False
    is_wary = False
    times_prepared = 0

    def may_send(self) -> bool:
        return not self.is_ending

    def is_aborted(self) -> bool:
        return self.is_over

    def needs_new_connection(self) -> bool:
        return self.is_wary

    def prepared(self) -> None:
        self.times_prepared += 1


class Connection:
    """kombu's connection for polls."""

    def __init__(self, client: Client) -> None:
        self._httpclient = client

    def has(self, client: Client) -> bool:
        return self._httpclient is client

    def send(self, request: Request) -> None:
        self._httpclient.add_request(request)


class Exchange:
    """Requests through kombu's client, and their answers."""

    def __init__(self, hub: Hub, proxy: FaultProxy, patience: float = 60.0) -> None:
        self.hub, self.client, self.watcher = hub, Client(hub), Watcher()
        self.answers: list[Any] = []
        self._proxy, self._patience = proxy, patience
        self.send()

    def send(self) -> None:
        connection = Connection(self.client)
        view = sending_for(connection, self.watcher, patience=self._patience)
        assert connection.has(self.client)
        request = Request(self._proxy.url, method="POST", body=b"{}", on_ready=self._note)
        request.headers["X-Amz-Target"] = "AmazonSQS.ListQueues"
        request.headers["Content-Type"] = "application/x-amz-json-1.0"
        view.send(request)

    def _note(self, response: Any) -> None:
        self.answers.append(response.error)

    def tick_until(self, condition: Callable[[], object]) -> None:
        ticks = self.hub.create_loop()

        def tick() -> bool:
            if not condition():
                next(ticks)
            return bool(condition())

        wait_until(tick)


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:kombu")
@pytest.mark.parametrize("ends", [False, True], ids=["the worker continues", "it ends meanwhile"])
def test_a_request_is_sent_in_the_next_tick_unless_the_worker_is_ending_by_then(
    hub: Hub, proxy: FaultProxy, ends: bool
) -> None:
    exchange = Exchange(hub, proxy)
    exchange.watcher.is_ending = ends
    exchange.tick_until(lambda: exchange.answers)
    # kombu 5.5 has no curl, and has sent the request before its call returns.
    is_sent = not ends or not uses_curl(exchange.client)
    assert [error is None for error in exchange.answers] == [is_sent]
    assert len(proxy.calls("ListQueues")) == is_sent
    assert exchange.watcher.times_prepared == 1


@pytest.mark.oldest
@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:kombu")
def test_a_request_after_one_that_was_not_answered_uses_a_new_connection(
    hub: Hub, proxy: FaultProxy
) -> None:
    exchange = Exchange(hub, proxy)
    exchange.tick_until(lambda: exchange.answers)
    proxy.forget_connections()
    exchange.watcher.is_wary = True
    exchange.send()
    exchange.tick_until(lambda: len(exchange.answers) == 2)
    assert exchange.answers == [None, None]


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:kombu")
def test_an_unanswered_request_ends_when_the_worker_no_longer_waits_for_it(
    hub: Hub, proxy: FaultProxy
) -> None:
    proxy.rule("*", never_answer())
    # kombu 5.5 blocks until the patience ends.
    exchange = Exchange(hub, proxy, patience=1.0)
    if uses_curl(exchange.client):
        exchange.tick_until(lambda: proxy.calls("ListQueues"))
        assert exchange.answers == []
        exchange.watcher.is_over = True
    exchange.tick_until(lambda: exchange.answers)
    assert exchange.answers[0] is not None
