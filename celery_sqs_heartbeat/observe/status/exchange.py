"""One connection of the status page: it reads one request, answers it and closes."""

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

from celery_sqs_heartbeat.observe.status.http import SAFE, RefusedError, Request, Response, Seats

logger = logging.getLogger(__name__)

#: The largest size of a request's line and headers, in bytes.
MAX_REQUEST = 8_192
#: How long a client may take to send a request, and to read its answer, in seconds each.
SECONDS = 5.0
#: How long bytes after a refused request are read and discarded, in seconds. The answer would be
#: lost if the connection were closed with unread bytes.
LINGER_SECONDS = 0.5
_END = b"\r\n\r\n"
_LINE = re.compile(rb"[A-Z]{1,20} [\x21-\x7e]+ HTTP/[1-9]\.\d")
#: No control characters, and no line that continues the one before.
_HEADERS = re.compile(rb"(?:[\t\x20-\x7e\x80-\xff]|\r\n(?![\t ]))*")


class Exchange(BaseHTTPRequestHandler):
    """Answers the one request of a connection. Raises no network errors.

    `http.server` parses the request. It is lenient and has no limits for a whole request, so this
    class reads and checks the request first.

    Args:
        answer: Answers requests. May raise `RefusedError`.
        seats: The seats for connections.
        connection: The arguments that the server passes to each of its handlers.
    """

    protocol_version = "HTTP/1.1"
    # The default is HTTP/0.9, in which an answer has no headers.
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
        """Answer the request, and wait briefly until the client has read the answer."""
        with contextlib.suppress(OSError):
            response = self._respond()
            self.connection.settimeout(SECONDS)
            self._send(response)
            self._seats.sent(self.connection)
            self._linger()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that `http.server` can't parse.

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
            raise RefusedError(500, "This failed. The worker's log has the reason.") from None

    def _read(self) -> Request:
        self.raw_requestline, _, headers = self._read_head().partition(b"\r\n")
        if not _LINE.fullmatch(self.raw_requestline):
            raise RefusedError(400, "This is not an HTTP request.")
        self.rfile.close()
        self.rfile = io.BytesIO(headers)
        self.parse_request()
        if self.headers.defects or not _HEADERS.fullmatch(headers):
            raise RefusedError(400, "A header is malformed.")
        for name in ("host", "authorization"):
            if len(self.headers.get_all(name, ())) > 1:
                raise RefusedError(400, f"There is more than one {name} header.")
        if self.command not in ("GET", "HEAD"):
            raise RefusedError(405, "Only GET and HEAD are supported.", Allow="GET, HEAD")
        return Request(
            path=self.path.partition("?")[0],
            headers={name.lower(): value.strip() for name, value in self.headers.items()},
        )

    def _read_head(self) -> bytes:
        """Return the request, up to and including the empty line."""
        head, deadline = b"", time.monotonic() + SECONDS
        while True:
            if len(head) > MAX_REQUEST:
                raise RefusedError(431, f"A request may have at most {MAX_REQUEST} bytes.")
            if _END in head:
                return head[: head.index(_END) + len(_END)]
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self.connection.recv(4_096)
            except TimeoutError:
                raise RefusedError(408, f"The request took more than {SECONDS:g} s.") from None
            if not more:
                raise RefusedError(400, "The request is incomplete.")
            head += more

    def _send(self, response: Response) -> None:
        # Not with `send_response`, which logs each request.
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
