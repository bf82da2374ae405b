"""A heap of leases by time, from which any lease can be removed."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from celery_sqs_heartbeat.leases.lease import Lease

#: Dead entries tolerated beyond the live ones before the heap is rebuilt.
_SLACK = 32


class LeaseHeap:
    """Leases ordered by a time; each change costs O(log n).

    A lease that is moved or removed leaves a dead entry behind. The heap skips dead entries at
    its top, and is rebuilt when they outnumber the live ones. Otherwise, with a long visibility
    timeout, thousands of acked leases would pile up until their extensions would have been due.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Lease]] = []
        self._live: dict[Lease, int] = {}
        self._serial = itertools.count()
        self._newest = -1

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._live

    def __iter__(self) -> Iterator[tuple[Lease, float]]:
        """Return each lease with its time, in no order."""
        return (
            (lease, time)
            for time, serial, lease in self._entries
            if self._live.get(lease) == serial
        )

    def put(self, lease: Lease, time: float) -> None:
        """Add the lease, or move it to another time."""
        serial = next(self._serial)
        self._live[lease] = serial
        heapq.heappush(self._entries, (time, serial, lease))
        self._newest = serial
        if len(self._entries) > 2 * len(self._live) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        newest = self._newest
        # From a copy, because a signal handler on this thread may add entries in the meantime.
        alive = [e for e in list(self._entries) if self._live.get(e[2]) == e[1]]
        heapq.heapify(alive)
        if self._newest == newest:
            self._entries[:] = alive

    def discard(self, lease: Lease) -> None:
        """Remove the lease, if it is in."""
        self._live.pop(lease, None)

    def first(self) -> tuple[float, Lease] | None:
        """Return the earliest time and its lease, or None when empty."""
        while self._entries:
            entry = self._entries[0]
            time, serial, lease = entry
            if self._live.get(lease) == serial:
                return time, lease
            if self._entries[0] is entry:
                heapq.heappop(self._entries)
        return None

    def first_time(self) -> float | None:
        """Return the earliest time, or None when empty."""
        first = self.first()
        return None if first is None else first[0]

    def pop(self) -> Lease:
        """Remove and return the lease with the earliest time.

        Raises:
            IndexError: It is empty.
        """
        while self.first_time() is not None:
            _, serial, lease = heapq.heappop(self._entries)
            if self._live.get(lease) == serial:
                del self._live[lease]
                return lease
        raise IndexError("pop from an empty LeaseHeap")
