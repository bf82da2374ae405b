"""Limits concurrent connections, so that a probe is always answered.

If a probe is not answered, its worker is restarted, and anyone who reaches the port can open
connections and stay silent. So a new connection replaces the oldest of those that wait for their
clients, and the number of answers computed at once is limited, except for probes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator

from celery_sqs_heartbeat.observe.status.http import RefusedError

#: The paths that are always answered. Their answers take microseconds.
PROBES = frozenset({"/livez", "/readyz", "/healthz"})
#: Answers that are computed at once; one page needs two.
MAX_ANSWERS = 16
#: Connections that wait for their clients: to send a request, or to read an answer.
MAX_WAITING = 20


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
