"""One connection of the status page: a request in, an answer out, the end."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from celery_sqs_heartbeat.observe.status.http import SAFE, RefusedError, Request, Response
from celery_sqs_heartbeat.observe.status.seats import Seats

logger = logging.getLogger(__name__)

#: Bytes of a request's line and headers at most.
MAX_REQUEST = 8_192
#: How long a request may take to come in, and its answer to be taken, in seconds each.
SECONDS = 5.0
#: How long what comes after a refused request is read and thrown away, in seconds: an
#: answer is lost when its connection is closed with bytes unread.
LINGER_SECONDS = 0.5
_END = b"\r\n\r\n"
_LINE = re.compile(rb"[A-Z]{1,20} [\x21-\x7e]+ HTTP/[1-9]\.\d")
#: No control characters, and no line that goes on with the one before.
_HEADERS = re.compile(rb"(?:[\t\x20-\x7e\x80-\xff]|\r\n(?![\t ]))*")


class Exchange(BaseHTTPRequestHandler):
    """Answers the one request of a connection. Raises nothing of the network's.

    `http.server` takes the request apart. It is lenient, and has no bounds for a whole request:
    so the request is read and looked over here first.

    Args:
        answer: Answers requests. May raise `RefusedError`.
        seats: Where the connection has a place.
        connection: What the server gives each of its handlers.
    """

    protocol_version = "HTTP/1.1"
    # In HTTP/0.9, its default, an answer has no head.
    request_version = default_request_version = "HTTP/1.1"
    command = ""
    disable_nagle_algorithm = True

    def __init__(
        self, answer: Callable[[Request], Response], seats: Seats, *connection: Any
    ) -> None:
        self._answer = answer
        self._seats = seats
        super().__init__(*connection)

    def handle(self) -> None:
        """Answer the request, and wait for a moment until the client has read that."""
        with contextlib.suppress(OSError):
            response = self._respond()
            self.connection.settimeout(SECONDS)
            self._send(response)
            self._seats.sent(self.connection)
            self._linger()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that `http.server` can't take apart.

        Raises:
            RefusedError: Always.
        """
        raise RefusedError(code, f"{message or explain or HTTPStatus(code).phrase}.")

    def _respond(self) -> Response:
        try:
            request = self._read()
            with self._seats.answering(self.connection, request.path):
                return self._answer_safely(request)
        except RefusedError as refused:
            return refused.response

    def _answer_safely(self, request: Request) -> Response:
        try:
            return self._answer(request)
        except RefusedError:
            raise
        except Exception:
            logger.exception("sqs-heartbeat: the status page failed on %s", request.path)
            raise RefusedError(500, "This failed; the worker's log says why.") from None

    def _read(self) -> Request:
        self.raw_requestline, _, headers = self._read_head().partition(b"\r\n")
        if not _LINE.fullmatch(self.raw_requestline):
            raise RefusedError(400, "This is no HTTP request.")
        self.rfile.close()
        self.rfile = io.BytesIO(headers)
        self.parse_request()
        if self.headers.defects or not _HEADERS.fullmatch(headers):
            raise RefusedError(400, "A header is malformed.")
        for name in ("host", "authorization"):
            if len(self.headers.get_all(name, ())) > 1:
                raise RefusedError(400, f"There is more than one header {name}.")
        if self.command not in ("GET", "HEAD"):
            raise RefusedError(405, "Only GET and HEAD are served here.", Allow="GET, HEAD")
        return Request(
            path=self.path.partition("?")[0],
            headers={name.lower(): value.strip() for name, value in self.headers.items()},
        )

    def _read_head(self) -> bytes:
        """Return the request up to and with the empty line."""
        head, deadline = b"", time.monotonic() + SECONDS
        while True:
            if len(head) > MAX_REQUEST:
                raise RefusedError(431, f"A request has at most {MAX_REQUEST} bytes here.")
            if _END in head:
                return head[: head.index(_END) + len(_END)]
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self.connection.recv(4_096)
            except TimeoutError:
                raise RefusedError(408, f"The request took more than {SECONDS:g} s.") from None
            if not more:
                raise RefusedError(400, "The request has no end.")
            head += more

    def _send(self, response: Response) -> None:
        # Not by `send_response`, which logs each request.
        self.send_response_only(response.status)
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            **SAFE,
            **response.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _linger(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + LINGER_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            self.connection.settimeout(left)
            if not self.connection.recv(65_536):
                return
