"""One connection of the status page: a request in, an answer out, the end."""

from __future__ import annotations

import contextlib
import time
from _socket import SHUT_RDWR, SHUT_WR
from _socket import socket as Socket
from collections.abc import Callable

from celery_sqs_heartbeat.observe.status.http import (
    MAX_REQUEST,
    RefusedError,
    Request,
    Response,
    parse_request,
)

#: How long a request may take to come in, and its answer to be taken, in seconds each.
SECONDS = 5.0
#: How long what comes after a refused request is read and thrown away, in seconds: an
#: answer is lost when its connection is closed with bytes unread.
LINGER_SECONDS = 0.5
_END = b"\r\n\r\n"


def serve(
    connection: Socket, answer: Callable[[Request], Response], sent: Callable[[], None]
) -> None:
    """Answer the connection's request and close it. Raises nothing of the network's.

    Args:
        sent: Called once the answer has left.
    """
    try:
        with contextlib.suppress(OSError):
            response, with_body = _respond(connection, answer)
            connection.settimeout(SECONDS)
            connection.sendall(response.encode(with_body=with_body))
            sent()
            _linger(connection)
    finally:
        close(connection)


def refuse(connection: Socket, response: Response) -> None:
    """Answer at once, whatever is asked, and close the connection."""
    with contextlib.suppress(OSError):
        connection.settimeout(0)
        connection.send(response.encode())
        connection.shutdown(SHUT_WR)
    close(connection)


def close(connection: Socket) -> None:
    """End a connection, also where a forked child has inherited it."""
    with contextlib.suppress(OSError):
        connection.shutdown(SHUT_RDWR)
    connection.close()


def _respond(connection: Socket, answer: Callable[[Request], Response]) -> tuple[Response, bool]:
    with_body = True
    try:
        request = parse_request(_read_head(connection))
        with_body = request.method != "HEAD"
        return answer(request), with_body
    except RefusedError as refused:
        return refused.response, with_body


def _read_head(connection: Socket) -> bytes:
    head, deadline = b"", time.monotonic() + SECONDS
    while True:
        if len(head) > MAX_REQUEST:
            raise RefusedError(431, f"A request has at most {MAX_REQUEST} bytes here.")
        if _END in head:
            return head.partition(_END)[0]
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            more = connection.recv(4_096)
        except TimeoutError:
            raise RefusedError(408, f"The request took more than {SECONDS:g} s.") from None
        if not more:
            raise RefusedError(400, "The request has no end.")
        head += more


def _linger(connection: Socket) -> None:
    connection.shutdown(SHUT_WR)
    deadline = time.monotonic() + LINGER_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(65_536):
            return
