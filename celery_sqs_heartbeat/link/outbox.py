"""Sends the messages of a keeper to its worker, from any thread."""

from __future__ import annotations

import threading

from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.link.wire import Wire

#: When so many messages wait for the worker, log lines and statistics are left out. A task that
#: lets no other thread run may keep the worker from reading for hours.
MOST_WAITING = 20_000
#: Kinds of messages that may be left out.
_SPARE = frozenset({"log", "stats"})


class Outbox:
    """Sends messages over a wire, without ever waiting for the worker."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lock = threading.RLock()
        self._left_out = 0

    def send(self, message: Message) -> None:
        """Send a message, now or by a later `push`."""
        with self._lock:
            if message[0] in _SPARE and self._wire.waiting >= MOST_WAITING:
                self._left_out += message[0] == "log"
                return
            self._wire.post(message)
            self._wire.flush()

    def push(self) -> None:
        """Send the messages that wait."""
        with self._lock:
            self._wire.flush()

    def take_left_out(self) -> int:
        """Return how many log lines were left out since the last report.

        While messages wait for the worker, return 0 and keep counting.
        """
        with self._lock:
            if self._wire.waiting:
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out
