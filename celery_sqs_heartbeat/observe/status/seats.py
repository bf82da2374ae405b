"""Which connections are served at once, so that a probe finds a place whatever else is open.

A liveness probe that is not answered has its worker restarted, and anyone who reaches the port
can open connections and stay silent. So the place of one that waits for its client is given to
the next that comes, and some places are for probes alone.
"""

from __future__ import annotations

import contextlib
import enum
from _socket import SHUT_RDWR
from _socket import socket as Socket
from collections.abc import Iterator

from celery_sqs_heartbeat.common import native
from celery_sqs_heartbeat.observe.status.http import RefusedError

#: The path that is always answered. Its answer takes microseconds.
PROBE = "/healthz"
#: Requests that are answered at once; a page needs two.
MAX_ANSWERS = 16
#: Connections that are served at once, each by a thread: some are left for probes.
MAX_CONNECTIONS = 20
#: How long one that was ended may take to leave its place, in seconds: as long as a probe waits.
_LEAVE_SECONDS = 5.0

BUSY = "Too many connections at once; try again."


class _Stage(enum.Enum):
    """How far a connection is."""

    WAITS = "waits"
    """For its client: for the rest of a request, or to take the answer."""
    COMPUTES = "computes"
    """The answer, which takes no client."""
    SENT = "sent"
    """The answer has left: nothing is lost by its end."""


class Seat:
    """The place of one connection."""

    def __init__(self, seats: Seats, connection: Socket) -> None:
        self._seats = seats
        self.connection = connection
        self.stage = _Stage.WAITS
        self.is_probe = False

    @contextlib.contextmanager
    def answering(self, path: str) -> Iterator[None]:
        """Hold a right to compute an answer.

        Raises:
            RefusedError: Too many do; never for a probe.
        """
        self._seats.begin(self, is_probe=path == PROBE)
        try:
            yield
        finally:
            self.stage = _Stage.WAITS

    def sent(self) -> None:
        """Take note that the answer has left."""
        self.stage = _Stage.SENT

    def leave(self) -> None:
        """Give the place free."""
        self._seats.leave(self)


class Seats:
    """The places there are. `admit` is for one thread, all else for any."""

    def __init__(self) -> None:
        # In the order in which they came.
        self._taken: list[Seat] = []
        self._lock = native.RLock()
        self._left = native.Bell()

    def admit(self, connection: Socket) -> Seat | None:
        """Return a place for the connection, that of an older one if need be; None without."""
        if len(self._taken) >= MAX_CONNECTIONS and not self._make_room():
            return None
        seat = Seat(self, connection)
        with self._lock:
            self._taken.append(seat)
        return seat

    def begin(self, seat: Seat, *, is_probe: bool) -> None:
        """Let a connection compute its answer.

        Raises:
            RefusedError: Too many do; never for a probe.
        """
        with self._lock:
            busy = sum(each.stage is _Stage.COMPUTES and not each.is_probe for each in self._taken)
            if busy >= MAX_ANSWERS and not is_probe:
                raise RefusedError(503, BUSY, Retry_After="1")
            seat.stage, seat.is_probe = _Stage.COMPUTES, is_probe

    def leave(self, seat: Seat) -> None:
        """Take a connection's place back."""
        with self._lock:
            self._taken.remove(seat)
        self._left.ring()

    def _make_room(self) -> bool:
        """End the connection that is missed least, and return whether its place is free."""
        self._left.wait(0)
        with self._lock:
            for stage in (_Stage.SENT, _Stage.WAITS):
                victim = next((each for each in self._taken if each.stage is stage), None)
                if victim is not None:
                    # Its thread is in a call on it, and returns.
                    with contextlib.suppress(OSError):
                        victim.connection.shutdown(SHUT_RDWR)
                    break
        if len(self._taken) >= MAX_CONNECTIONS:
            self._left.wait(_LEAVE_SECONDS)
        return len(self._taken) < MAX_CONNECTIONS
