"""A proxy in front of an SQS server that records every call and injects faults."""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from celery_sqs_heartbeat.testing.httpd import ConnectionServer, KeepAliveHandler
from tests.support.clients import Service, sqs_client
from tests.support.faults import Answer, Body, ConnectionDropped, Effect, Forward, Unanswered
from tests.support.recording import Call, CallLog

#: Gets the operation, the id of the key that signed it, its body and a function that forwards it.
#: Returns the answer to the client.
Handle = Callable[[str, str, Body, Callable[[Body], Answer]], Answer]

#: SO_LINGER on, for zero seconds: close() then sends a reset.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Listener(ConnectionServer):
    """Listens on a loopback port; 0 for a free one.

    Attributes:
        forgotten: How often all connections were forgotten.
    """

    def __init__(self, upstream_url: str, handle: Handle, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.upstream_url = upstream_url
        self.handle = handle
        self.forgotten = 0

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(KeepAliveHandler):
    """Answers the calls of one client connection."""

    server: Listener

    def setup(self) -> None:
        super().setup()
        self._upstream = Upstream(self.server.upstream_url)
        self._opened_after = self.server.forgotten

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def do_POST(self) -> None:
        """Handle one call of the AWS JSON protocol."""
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self._send(self.server.handle(operation, self._access_key(), body, self._forward))
        except ConnectionDropped as dropped:
            self.close_connection = True
            if dropped.reset:
                self._reset()

    def _access_key(self) -> str:
        # AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/sqs/aws4_request, SignedHeaders=...
        signed = self.headers.get("Authorization", "").partition("Credential=")[2]
        return signed.partition("/")[0]

    def _forward(self, body: Body) -> Answer:
        if self._opened_after < self.server.forgotten:
            raise Unanswered
        headers = end_to_end(self.headers.items())
        return self._upstream.post(self.path, headers, json.dumps(body).encode())

    def _send(self, answer: Answer) -> None:
        if not answer.drips:
            self.reply(answer.status, dict(answer.headers), answer.content)
            return
        self.reply_head(answer.status, dict(answer.headers), len(answer.content))
        for byte in answer.content:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(answer.drips)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        # The server would shut the socket down in an orderly way first, which sends no reset.
        os.close(self.connection.detach())


#: Longer than any SQS call: the longest poll is 20 s.
TIMEOUT_SECONDS = 60.0

#: Headers about one connection, or that http.client sets itself (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "date",
        "expect",
        "keep-alive",
        "server",
        "transfer-encoding",
    }
)


class Upstream:
    """One connection to the server, used by one thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=TIMEOUT_SECONDS
        )

    def post(self, path: str, headers: dict[str, str], content: bytes) -> Answer:
        """Forward one request.

        Args:
            path: Path of the request.
            headers: The client's headers, including Host. Servers build queue URLs from it, so
                the URLs lead back to the proxy.
            content: The JSON body.

        Raises:
            ConnectionDropped: The server is gone, which is what the client must see.
        """
        self._drop_stale()
        try:
            self._connection.request("POST", path, content, headers)
            response = self._connection.getresponse()
            return Answer(
                status=response.status,
                content=response.read(),
                headers=end_to_end(response.getheaders()),
            )
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ConnectionDropped(reset=True) from error

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _drop_stale(self) -> None:
        # A server may close an idle connection. Sending on it would look like a fault that
        # no test injected.
        sock = self._connection.sock
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()


def end_to_end(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers that a proxy passes on."""
    return {name: value for name, value in headers if name.lower() not in _HOP_BY_HOP}


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
