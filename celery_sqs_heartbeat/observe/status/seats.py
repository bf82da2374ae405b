"""Which connections are served at once, so that a probe finds a place whatever else is open.

A liveness probe that is not answered has its worker restarted, and anyone who reaches the port
can open connections and stay silent. So of the connections that wait for their clients the oldest
is ended for a new one, and only so many answers are computed at once besides probes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator

from celery_sqs_heartbeat.observe.status.http import RefusedError

#: The path that is always answered. Its answer takes microseconds.
PROBE = "/healthz"
#: Requests that are answered at once; a page needs two.
MAX_ANSWERS = 16
#: Connections that wait for their clients at once: for a request, or to have an answer taken.
MAX_WAITING = 20


class Seats:
    """The places there are. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The first is the next to go.
        self._waiting: OrderedDict[socket.socket, None] = OrderedDict()
        self._answers = threading.BoundedSemaphore(MAX_ANSWERS)

    def admit(self, connection: socket.socket) -> None:
        """Let a connection wait for its client, in the place of an older one if need be."""
        with self._lock:
            self._waiting[connection] = None
            if len(self._waiting) > MAX_WAITING:
                oldest, _ = self._waiting.popitem(last=False)
                # Its thread is in a call on it, and returns.
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def answering(self, connection: socket.socket, path: str) -> Iterator[None]:
        """Compute the connection's answer, which takes no client.

        Raises:
            RefusedError: Too many do; never for a probe.
        """
        is_probe = path == PROBE
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
        """Note that the answer has left: little is lost by the connection's end."""
        with self._lock:
            if connection in self._waiting:
                self._waiting.move_to_end(connection, last=False)

    def leave(self, connection: socket.socket) -> None:
        """Give the connection's place free."""
        with self._lock:
            self._waiting.pop(connection, None)
