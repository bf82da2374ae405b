"""Repeated requests use connections as boto3 does, with its settings, and fail as its calls do."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.events import CallKind, Outcome
from celery_sqs_heartbeat.sqs import clients, sending
from celery_sqs_heartbeat.sqs.sending import MAX_AGE_SECONDS
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.answered import (
    CONFIRMED,
    QUEUE,
    AnsweredClient,
    call_of,
    config,
)
from tests.support.waiting import PATIENCE, wait_until

#: With urllib3 before version 2, too.
pytestmark = pytest.mark.versions

BODY = json.dumps(CONFIRMED).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(BODY)
CONFIRMATION = HEAD + b"\r\n" + BODY
Behave = Callable[[socket.socket], object]


def saying(data: bytes, *, closes: bool = False) -> Behave:
    """Answer with these bytes, and close the connection if told to."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(data)
        if closes:
            connection.close()

    return behave


confirm = saying(CONFIRMATION)
#: As a server does with an idle connection, which the client keeps.
confirm_and_close = saying(CONFIRMATION, closes=True)
refuse = saying(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}")
#: Ways to leave a call without a usable answer.
BROKEN = {
    "closed": saying(b"", closes=True),
    "half a body": saying(HEAD + b"\r\n" + BODY[:5], closes=True),
    "no HTTP": saying(b"no HTTP at all\r\n\r\n", closes=True),
    "half a head": saying(HEAD, closes=True),
}


class Server:
    """Behaves for each request as the test says, and confirms by default.

    Attributes:
        url: Its URL, if it speaks plain HTTP.
        requests: The first line of each request, with the number of its connection.
        heads: The head of each request.
        closed: How many connections it has closed.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self.heads: list[bytes] = []
        self.behave: Behave = confirm
        self.closed = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._connections: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        # The thread in `accept` would keep the port open otherwise.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        # It may be in the middle of a handshake.
        self._accepting.join(PATIENCE)
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            self._connections.append(connection)
            number = len(self._connections)
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        data = b""
        try:
            while True:
                head, end, rest = data.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                if not end or len(rest) < length:
                    received = connection.recv(65_536)
                    if not received:
                        return
                    data += received
                    continue
                data = rest[length:]
                self.requests.append((number, head.partition(b"\r\n")[0]))
                self.heads.append(head)
                self.behave(connection)
                if connection.fileno() < 0:
                    self.closed += 1
                    return
        except OSError:
            return


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(context)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def patient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call take as long as it needs, unless a test says otherwise."""
    monkeypatch.setattr(clients, "MAX_TIMEOUT", PATIENCE)


def client_of(server: Server, *, by_boto3: bool = False, **changed: Any) -> AnsweredClient:
    given = {"endpoint_url": f"http://127.0.0.1:{server.port}", "use_ssl": False, **changed}
    made = clients.new_client(config(**given), QUEUE, threshold=2 * PATIENCE)
    answered = AnsweredClient(made, by_boto3=by_boto3)
    answered.answer = lambda request: None
    return answered


def connections_of(server: Server) -> list[int]:
    return [number for number, _ in server.requests]


def test_calls_share_a_connection_also_after_a_refusal(server: Server) -> None:
    answered = client_of(server)
    for kind in (*CallKind, *CallKind):
        assert answered.send(call_of(kind)) == [Outcome.DONE] * 2
    assert answered.made_by_boto3 == 2
    server.behave = refuse
    assert answered.repeats()
    server.behave = confirm
    assert answered.send() == [Outcome.DONE] * 2
    assert connections_of(server) == [1] * 6


@pytest.mark.parametrize("by_boto3", [False, True])
def test_a_connection_that_the_server_has_closed_fails_no_call(
    server: Server, by_boto3: bool
) -> None:
    answered = client_of(server, by_boto3=by_boto3)
    server.behave = confirm_and_close
    for count in range(3):
        assert answered.send() == [Outcome.DONE] * 2
        wait_until(lambda count=count: server.closed > count)
    assert connections_of(server) == [1, 2, 3]
    server.close()
    assert answered.send() == [Outcome.FAILED] * 2


@pytest.mark.parametrize("behave", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("by_boto3", [False, True])
def test_a_call_without_an_answer_is_unknown_and_the_next_has_another_connection(
    server: Server, behave: Behave, by_boto3: bool
) -> None:
    answered = client_of(server, by_boto3=by_boto3)
    answered.send()
    made = answered.made_by_boto3
    server.behave = behave
    assert answered.send() == [Outcome.UNKNOWN] * 2
    # The keeper repeats calls, not boto3.
    assert len(server.requests) == 2
    assert answered.made_by_boto3 - made == by_boto3
    server.behave = confirm
    assert answered.send() == [Outcome.DONE] * 2
    assert connections_of(server) == [1, 1, 2]


@pytest.mark.parametrize("by_boto3", [False, True])
def test_a_connection_is_not_used_after_ten_seconds(
    server: Server, monkeypatch: pytest.MonkeyPatch, by_boto3: bool
) -> None:
    now = FakeClock(1_000.0)
    monkeypatch.setattr(sending.clock, "now", now)
    answered = client_of(server, by_boto3=by_boto3)
    for _ in range(3):
        answered.send()
        now.advance(MAX_AGE_SECONDS / 3)
    answered.send()
    assert connections_of(server) == [1, 1, 1, 2]
