"""Accepts the status page's connections, and serves each on its own thread."""

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
from celery_sqs_heartbeat.observe.status.http import Request, Response, Seats

logger = logging.getLogger(__name__)

#: How often the listener checks whether it must stop, in seconds.
_POLL = 0.1
#: Pause after the system refused a connection, in seconds.
_FAULT_PAUSE = 0.5


class Listener(socketserver.TCPServer):
    """Listens at one address once it is made, and answers once it is started.

    It is not an `HTTPServer`, because that looks up the host's name in DNS, which may hang.

    Args:
        answer: Answers requests, on several threads at once. May raise `RefusedError`.

    Attributes:
        port: The port that it listens at.

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
        """Serve connections.

        Raises:
            OSError: The system refuses a new thread.
        """
        try:
            threading.Thread(
                target=self.serve_forever, args=(_POLL,), name="sqs-heartbeat-status", daemon=True
            ).start()
        except RuntimeError as error:
            self.server_close()
            raise OSError(str(error)) from error

    def stop(self) -> None:
        """Stop accepting connections. Open connections are served to their ends."""
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind the address. An IPv6 address is bound for IPv6 only."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            OSError: The system refuses it.
        """
        try:
            return super().get_request()
        except OSError as error:
            logger.warning("sqs-heartbeat: the status page can't accept connections: %s", error)
            time.sleep(_FAULT_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread.

        Raises:
            RuntimeError: The system refuses a new thread.
        """
        self._seats.admit(request)
        threading.Thread(
            target=self._serve,
            args=(request, client_address),
            name="sqs-heartbeat-status-request",
            daemon=True,
        ).start()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._seats.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log errors that are not of the network. The connection is closed."""
        if not isinstance(sys.exc_info()[1], OSError):
            logger.exception("sqs-heartbeat: the status page failed")

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
