"""Queues the subjects of lines. No caller waits for the disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.journal.fields import Origin

#: Makes the fields of a line from a subject, a line number and an origin.
Make = Callable[[Any, int, Origin], dict[str, Any]]


class Backlog:
    """Subjects of lines, numbered in order. Any thread may put them, and one thread takes them.

    Args:
        limit: If this many wait, further ones are lost. Their numbers are then missing from the
            journal.
        last: The number before that of the first line.
        note: Is called with each number that is assigned.

    Attributes:
        bell: Rung when the backlog is half full.
        lost: How many were lost.
    """

    def __init__(
        self, limit: int, last: int = 0, note: Callable[[int], None] = lambda number: None
    ) -> None:
        self._limit = limit
        self._items: deque[tuple[Make, Any, int]] = deque()
        self._lock = threading.Lock()
        self._last = last
        self._note = note
        self.wakeup = AutoResetEvent()
        self.lost = 0

    def put(self, make: Make, subject: Any) -> None:
        """Add a subject, or count it as lost."""
        with self._lock:
            self._last += 1
            self._note(self._last)
            waiting = len(self._items)
            if waiting >= self._limit:
                self.lost += 1
                return
            self._items.append((make, subject, self._last))
        if waiting == self._limit // 2:
            self.wakeup.set()

    def take(self) -> list[tuple[Make, Any, int]]:
        """Remove and return all subjects that wait, in order."""
        return [self._items.popleft() for _ in range(len(self._items))]
