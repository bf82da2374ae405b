"""Accepts the status page's connections, and serves each on a thread of its own."""

from __future__ import annotations

import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery_sqs_heartbeat.observe.status.exchange import Exchange
from celery_sqs_heartbeat.observe.status.http import Request, Response
from celery_sqs_heartbeat.observe.status.seats import Seats

logger = logging.getLogger(__name__)

#: How often it looks whether it is to end, in seconds.
_POLL = 0.1
#: Pause when the system grants no more connections, in seconds.
_FAULT_PAUSE = 0.5


class Listener(socketserver.TCPServer):
    """Listens at one address from its making on, and answers from its start on.

    Not an `HTTPServer`: that asks a name server for the host's name, which may hang.

    Args:
        answer: Answers requests, on several threads at once. May raise `RefusedError`.

    Attributes:
        port: That it listens at.

    Raises:
        OSError: The address can't be used.
    """

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, answer: Callable[[Request], Response]) -> None:
        self._seats = Seats()
        address: Any
        self.address_family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__(address, partial(Exchange, answer, self._seats))
        self.port = int(self.server_address[1])

    def start(self) -> None:
        """Serve what connects.

        Raises:
            OSError: The system grants no thread.
        """
        try:
            threading.Thread(
                target=self.serve_forever, args=(_POLL,), name="sqs-heartbeat-status", daemon=True
            ).start()
        except RuntimeError as error:
            self.server_close()
            raise OSError(str(error)) from error

    def stop(self) -> None:
        """Accept no more connections. Those that are served are left to their ends."""
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Take the address, of IPv6 alone where it is one."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            OSError: The system grants none.
        """
        try:
            return super().get_request()
        except OSError as error:
            logger.warning("sqs-heartbeat: the status page can't be reached: %s", error)
            time.sleep(_FAULT_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        self._seats.admit(request)
        threading.Thread(
            target=self._serve,
            args=(request, client_address),
            name="sqs-heartbeat-status-request",
            daemon=True,
        ).start()

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._seats.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log what is no fault of the network's; the connection is ended."""
        if not isinstance(sys.exc_info()[1], OSError):
            logger.exception("sqs-heartbeat: the status page failed")

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
