"""Requests to the status page and its answers, who may see them, and how many at once.

If a probe is not answered, its worker is restarted, and anyone who reaches the port can open
connections and stay silent. So a new connection replaces the oldest of those that wait for their
clients, and the number of answers computed at once is limited, except for probes.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from celery_sqs_heartbeat.settings import address
from celery_sqs_heartbeat.settings.address import is_loopback, parse_address

#: Headers of every answer: nothing is stored, framed, guessed or fetched from elsewhere.
SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}

#: The paths that are always answered. Their answers take microseconds.
PROBES = frozenset({"/livez", "/readyz", "/healthz"})
#: Answers that are computed at once; one page needs two.
MAX_ANSWERS = 16
#: Connections that wait for their clients: to send a request, or to read an answer.
MAX_WAITING = 20
#: Paths that need no token, because they contain nothing about messages: the page's own files, and
#: the health, so that a probe needs no secret.
OPEN = frozenset({"/", "/page.css", "/page.js", "/icon.svg", *PROBES})


class RefusedError(Exception):
    """The request is answered with an error."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = Response(status=status, body=f"{sentence}\n".encode(), headers=named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. Header names are in lower case, and the path has no query."""

    path: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer."""

    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Seats:
    """The seats for connections. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The first is the next to be closed.
        self._waiting: OrderedDict[socket.socket, None] = OrderedDict()
        self._answers = threading.BoundedSemaphore(MAX_ANSWERS)

    def admit(self, connection: socket.socket) -> None:
        """Let a connection wait for its client, and close the oldest one if there are too many."""
        with self._lock:
            self._waiting[connection] = None
            if len(self._waiting) > MAX_WAITING:
                oldest, _ = self._waiting.popitem(last=False)
                # Its thread waits in a call on the socket, which returns now.
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def answering(self, connection: socket.socket, path: str) -> Iterator[None]:
        """Compute the connection's answer, which does not wait for the client.

        Raises:
            RefusedError: Too many answers are being computed. Never raised for a probe.
        """
        is_probe = path in PROBES
        if not is_probe and not self._answers.acquire(blocking=False):
            raise RefusedError(503, "Too many connections at once; try again.", Retry_After="1")
        try:
            self.leave(connection)
            yield
        finally:
            self.admit(connection)
            if not is_probe:
                self._answers.release()

    def sent(self, connection: socket.socket) -> None:
        """Note that the answer was sent: this connection is the next to be closed."""
        with self._lock:
            if connection in self._waiting:
                self._waiting.move_to_end(connection, last=False)

    def leave(self, connection: socket.socket) -> None:
        """Free the connection's seat."""
        with self._lock:
            self._waiting.pop(connection, None)


def token_fault(host: str, token: str | None) -> str | None:
    """Return the fault of a token for a server that listens at that host, or None."""
    if token is not None:
        return address.token_fault(token)
    if is_loopback(host):
        return None
    return (
        f"must be set, because other machines can reach {host}: set it to a long random "
        "text, or serve the page on 127.0.0.1"
    )


class Guard:
    """Accepts or refuses requests.

    Args:
        host: The address that the server listens at.
        token: The token that all data needs, or None.
    """

    def __init__(self, host: str, token: str | None) -> None:
        self._is_local = is_loopback(host)
        self._token = token

    def check(self, request: Request) -> None:
        """Refuse a request that must not be answered.

        Raises:
            RefusedError: The request is refused; the error has the reason.
        """
        if self._is_local:
            _check_host(request.headers.get("host"))
        if self._token is not None and request.path not in OPEN:
            self._check_token(self._token, request.headers.get("authorization", ""))

    @staticmethod
    def _check_token(token: str, given: str) -> None:
        scheme, _, shown = given.partition(" ")
        is_right = hmac.compare_digest(shown.strip().encode("latin-1"), token.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise RefusedError(
                401,
                "Send the header 'Authorization: Bearer ...' with the value of "
                "sqs_heartbeat_status_token.",
                WWW_Authenticate='Bearer realm="sqs-heartbeat"',
            )


def _check_host(header: str | None) -> None:
    """Refuse another host's name: a website may have made it resolve to this machine.

    The port may differ, because of a tunnel.
    """
    if header is None:
        raise RefusedError(400, "The header Host is missing.")
    try:
        host, _ = parse_address(header)
    except ValueError:
        host = header.strip("[]")
    if not is_loopback(host.lower()):
        raise RefusedError(403, "Use the host name localhost or 127.0.0.1.")
