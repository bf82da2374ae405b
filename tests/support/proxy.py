"""A proxy in front of an SQS server that records every call and injects faults."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.answers import Answer, Body, ConnectionDropped, Unanswered
from tests.support.clients import sqs_client
from tests.support.faults import Effect, Forward
from tests.support.listener import Listener
from tests.support.recording import Call, CallLog
from tests.support.service import Service


class FaultProxy(Service):
    """Serves the SQS server at `upstream_url` under its own `url`.

    Attributes:
        calls: `CallLog.calls`, the calls recorded so far.
        wait_for: `CallLog.wait_for`, which waits for answered calls.
        forget: `CallLog.forget`, which empties the record but keeps the rules.
    """

    def __init__(self, upstream_url: str) -> None:
        self.upstream_url = upstream_url
        self._log = CallLog()
        self._stopped = threading.Event()
        self._rules: tuple[tuple[frozenset[str], Effect], ...] = ()
        self._listener = Listener(upstream_url, self._handle)
        self.calls = self._log.calls
        self.wait_for = self._log.wait_for
        self.forget = self._log.forget

    @property
    def url(self) -> str:
        """The endpoint, without a path."""
        return self._listener.url

    def client(self, **config: Any) -> Any:
        """Return a boto3 client that goes through the proxy; `config` is as for `sqs_client`."""
        return sqs_client(self.url, **config)

    def rule(self, operations: str | Iterable[str], effect: Effect) -> None:
        """Apply an effect to these operations, `"*"` for all; later rules act outside earlier."""
        names = [operations] if isinstance(operations, str) else operations
        self._rules = (*self._rules, (frozenset(names), effect))

    def clear(self) -> None:
        """Remove all rules, but keep the record."""
        self._rules = ()

    def forget_connections(self) -> None:
        """Never answer another call on the connections that are open now.

        So does a firewall that has forgotten them, because they were idle or it has restarted.
        """
        self._listener.forgotten += 1

    def start(self) -> None:
        """Serve from a separate thread."""
        threading.Thread(
            target=self._listener.serve_forever, args=(0.02,), name="fault-proxy", daemon=True
        ).start()

    @contextmanager
    def gone(self) -> Iterator[None]:
        """Refuse all connections meanwhile, as if the server's process had ended."""
        self._listener.stop()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(self._listener.server_address)
            yield
        port = self._listener.server_address[1]
        self._listener = Listener(self.upstream_url, self._handle, port)
        self.start()

    def stop(self) -> None:
        """Stop listening and end the connections that are open."""
        self._stopped.set()
        self._listener.stop()

    def _handle(self, operation: str, access_key: str, body: Body, send: Forward) -> Answer:
        call = self._log.open(operation, body, access_key)
        forward = self._recording(call, send)
        for names, effect in self._rules:
            if names & {operation, "*"}:
                forward = _around(effect, forward)
        try:
            answer = forward(body)
        except Unanswered as never:
            self._stopped.wait()
            raise ConnectionDropped(reset=True) from never
        self._log.answered(call, answer.status, answer.payload)
        return answer

    def _recording(self, call: Call, send: Forward) -> Forward:
        def forward(body: Body) -> Answer:
            self._log.forwarded(call)
            return send(body)

        return forward


def _around(effect: Effect, forward: Forward) -> Forward:
    return lambda body: effect(body, forward)
