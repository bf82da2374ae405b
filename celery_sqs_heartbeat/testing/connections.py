"""An HTTP/1.1 server that keeps connections open until it stops."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ConnectionServer(ThreadingHTTPServer):
    """One thread for each connection."""

    daemon_threads = True
    # Workers and benchmarks open many connections at once; the default backlog is 5.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, to close it with the server."""
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection and close it."""
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that left: workers get killed during their calls."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Stop listening and close the open connections."""
        self.shutdown()
        self.server_close()
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class KeepAliveHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, each in one packet."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Buffered, so head and body leave together.
    wbufsize = -1

    def reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
        """Send an answer."""
        self.reply_head(status, headers, len(content))
        self.wfile.write(content)
        self.wfile.flush()

    def reply_head(self, status: int, headers: dict[str, str], length: int) -> None:
        """Begin an answer. It avoids send_response, which logs a line per call."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
