"""What waits to be written, without anybody waiting for that."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.common.bell import Bell
from celery_sqs_heartbeat.journal.journal_events import Record
from celery_sqs_heartbeat.journal.mapping import Origin

#: Makes a record of a subject, with its number and whose line it is.
Make = Callable[[Any, int, Origin], Record]


class Backlog:
    """Subjects of lines, numbered in their order. Put by any thread, taken by one.

    Args:
        limit: Beyond so many that wait no more are taken in. Their numbers are missing
            from the journal, then.
        last: The number of the line before the first.
        note: Is called with each number that was given.

    Attributes:
        bell: Rung when half of the places are taken.
        lost: How many were not taken in.
    """

    def __init__(
        self, limit: int, last: int = 0, note: Callable[[int], None] = lambda number: None
    ) -> None:
        self._limit = limit
        self._items: deque[tuple[Make, Any, int]] = deque()
        self._lock = threading.Lock()
        self._last = last
        self._note = note
        self.bell = Bell()
        self.lost = 0

    def put(self, make: Make, subject: Any) -> None:
        """Take a subject in, or count it as lost."""
        with self._lock:
            self._last += 1
            self._note(self._last)
            waiting = len(self._items)
            if waiting >= self._limit:
                self.lost += 1
                return
            self._items.append((make, subject, self._last))
        if waiting == self._limit // 2:
            self.bell.ring()

    def take(self) -> list[tuple[Make, Any, int]]:
        """Return what waits, in order."""
        return [self._items.popleft() for _ in range(len(self._items))]
