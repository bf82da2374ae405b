"""What a keeper has to say to its worker, from any of its threads."""

from __future__ import annotations

import threading

from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.link.wire import Wire

#: Messages that wait for the worker at which log lines and figures are left out: a worker may
#: stand still for hours in a task that lets no other thread run.
MOST_WAITING = 20_000
#: Those that may be left out.
_SPARE = frozenset({"log", "stats"})


class Outbox:
    """Sends messages over a wire, without ever waiting for the worker."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lock = threading.RLock()
        self._left_out = 0

    def send(self, message: Message) -> None:
        """Send a message soon."""
        with self._lock:
            if message[0] in _SPARE and self._wire.waiting >= MOST_WAITING:
                self._left_out += message[0] == "log"
                return
            self._wire.post(message)
            self._wire.flush()

    def push(self) -> None:
        """Send what the worker would not take before."""
        with self._lock:
            self._wire.flush()

    def take_left_out(self) -> int:
        """Return how many log lines were left out, once the worker has taken what waited; else 0.

        No line is counted twice.
        """
        with self._lock:
            if self._wire.waiting:
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out
