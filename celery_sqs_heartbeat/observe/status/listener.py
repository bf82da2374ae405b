"""Accepts connections on threads of the system's own, under gevent and eventlet too.

On `_socket`, which neither of them replaces: it must answer while a task does not yield, and
`socket`, `selectors` and so `http.server` would wait for that.
"""

from __future__ import annotations

import _socket
import contextlib
import logging
import os
import time
from _socket import socket as Socket
from collections.abc import Callable
from weakref import WeakSet

from celery_sqs_heartbeat.common import native
from celery_sqs_heartbeat.observe.status.connection import close, refuse, serve
from celery_sqs_heartbeat.observe.status.http import RefusedError, Request, Response
from celery_sqs_heartbeat.observe.status.seats import BUSY, Seat, Seats

logger = logging.getLogger(__name__)

#: How often it looks whether it is to end, where the system does not tell it, in seconds.
_POLL = 1.0
#: Pause when the system grants no more connections or threads, in seconds.
_FAULT_PAUSE = 0.5
#: How long an end is waited for, in seconds.
_END_SECONDS = 3.0

_BUSY = RefusedError(503, BUSY, Retry_After="1").response


class Listener:
    """Listens at one address from its making on.

    Args:
        answer: Answers requests, on several threads at once. May raise `RefusedError`.

    Attributes:
        port: That it listens at.

    Raises:
        OSError: The address can't be used.
    """

    def __init__(self, host: str, port: int, answer: Callable[[Request], Response]) -> None:
        self._answer = answer
        self._seats = Seats()
        self._is_wanted = True
        self._is_over = False
        self._socket = listening_socket(host, port)
        self.port = int(self._socket.getsockname()[1])
        _open.add(self)
        try:
            native.start_thread(self._accept_all, "sqs-heartbeat-status")
        except RuntimeError as error:
            self._socket.close()
            raise OSError(str(error)) from error

    def stop(self) -> None:
        """Accept no more connections. Those that are served are left to their ends."""
        self._is_wanted = False
        # Wakes `accept` where the system is Linux; elsewhere it looks once a second.
        with contextlib.suppress(OSError):
            self._socket.shutdown(_socket.SHUT_RDWR)
        deadline = time.monotonic() + _END_SECONDS
        # Not on a lock: a greenlet that waits must let others run.
        while not self._is_over and time.monotonic() < deadline:
            time.sleep(0.01)

    def leave_to_parent(self) -> None:
        """Close what a forked child has inherited: it would keep the port taken."""
        self._is_wanted = False
        self._socket.close()

    def _accept_all(self) -> None:
        try:
            while self._is_wanted:
                self._accept_next()
        finally:
            self._socket.close()
            self._is_over = True

    def _accept_next(self) -> None:
        try:
            descriptor, _ = self._socket._accept()  # type: ignore[attr-defined]
        except TimeoutError:
            return
        except OSError as error:
            if self._is_wanted:
                logger.warning("sqs-heartbeat: the status page can't be reached: %s", error)
                native.Bell().wait(_FAULT_PAUSE)
            return
        connection = Socket(fileno=descriptor)
        seat = self._seats.admit(connection)
        if seat is None:
            refuse(connection, _BUSY)
            return
        try:
            native.start_thread(lambda: self._serve(seat), "sqs-heartbeat-status-request")
        except RuntimeError:
            close(connection)
            seat.leave()

    def _serve(self, seat: Seat) -> None:
        try:
            serve(seat.connection, lambda request: self._answer_safely(request, seat), seat.sent)
        finally:
            seat.leave()

    def _answer_safely(self, request: Request, seat: Seat) -> Response:
        try:
            with seat.answering(request.path):
                return self._answer(request)
        except RefusedError:
            raise
        except Exception:
            logger.exception("sqs-heartbeat: the status page failed on %s", request.path)
            raise RefusedError(500, "This failed; the worker's log says why.") from None


def listening_socket(host: str, port: int) -> Socket:
    """Return a socket that listens at an address.

    Raises:
        OSError: The address can't be used.
    """
    family, kind, protocol, _, address = _socket.getaddrinfo(
        host, port, 0, _socket.SOCK_STREAM, 0, _socket.AI_PASSIVE
    )[0]
    listening = Socket(family, kind, protocol)
    try:
        listening.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if family == _socket.AF_INET6:
            listening.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(64)
        listening.settimeout(_POLL)
    except BaseException:
        listening.close()
        raise
    return listening


_open: WeakSet[Listener] = WeakSet()


def _leave_all_to_parent() -> None:
    for listener in tuple(_open):
        listener.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
