"""A heap of leases by time, from which any lease can be removed."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from celery_sqs_heartbeat.leases.lease import Lease

#: Dead entries tolerated beyond the live leases before a heap is rebuilt.
_SLACK = 32


class LeasePlaces:
    """Notes on each lease which entry of some heaps is its own. A lease is in one of them at most.

    A dictionary in each heap would need 100 to 200 bytes a lease.

    Args:
        attribute: The attribute of leases for the number of that entry, 0 for none.
    """

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute
        self._numbers = itertools.count(1)
        #: How many leases have a place. It only decides when heaps are rebuilt.
        self.taken = 0

    def take(self, lease: Lease) -> int:
        """Return the number for a new entry of the lease. An older entry is dead from now on."""
        self.taken += not getattr(lease, self._attribute)
        number = next(self._numbers)
        setattr(lease, self._attribute, number)
        return number

    def leave(self, lease: Lease) -> None:
        """Remove the lease from its heap, if it is in one."""
        self.taken -= bool(getattr(lease, self._attribute))
        setattr(lease, self._attribute, 0)

    def has(self, lease: Lease, number: int) -> bool:
        """Return whether the entry with that number is the lease's own."""
        return bool(getattr(lease, self._attribute) == number)


class LeaseHeap:
    """Leases ordered by a time; each change costs O(log n).

    A lease that is moved or removed leaves a dead entry behind. The heap skips dead entries at
    its top, and is rebuilt when they outnumber the leases that have a place. Otherwise, with a long
    visibility timeout, thousands of acked leases would pile up until their extensions would have
    been due.
    """

    def __init__(self, places: LeasePlaces) -> None:
        self._places = places
        self._entries: list[tuple[float, int, Lease]] = []
        self._newest = 0

    def __iter__(self) -> Iterator[tuple[Lease, float]]:
        """Return each lease with its time, in no order."""
        has = self._places.has
        return ((lease, time) for time, number, lease in self._entries if has(lease, number))

    def put(self, lease: Lease, time: float) -> None:
        """Add the lease, or move it here from another time or heap."""
        number = self._places.take(lease)
        heapq.heappush(self._entries, (time, number, lease))
        self._newest = number
        if len(self._entries) > 2 * self._places.taken + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        newest, has = self._newest, self._places.has
        # From a copy, because a signal handler on this thread may add entries in the meantime.
        alive = [e for e in list(self._entries) if has(e[2], e[1])]
        heapq.heapify(alive)
        if self._newest == newest:
            self._entries[:] = alive

    def first(self) -> tuple[float, Lease] | None:
        """Return the earliest time and its lease, or None when empty."""
        while self._entries:
            entry = self._entries[0]
            time, number, lease = entry
            if self._places.has(lease, number):
                return time, lease
            if self._entries[0] is entry:
                heapq.heappop(self._entries)
        return None

    def first_time(self) -> float | None:
        """Return the earliest time, or None when empty."""
        first = self.first()
        return None if first is None else first[0]

    def postpone(self, lease: Lease, time: float) -> None:
        """Move a lease that `first` has just returned to a later time."""
        _, number, first = self._entries[0]
        # A signal handler on this thread may have put another lease before it.
        if first is lease:
            heapq.heapreplace(self._entries, (time, number, lease))

    def pop(self) -> Lease:
        """Remove and return the lease with the earliest time.

        Raises:
            IndexError: It is empty.
        """
        while self._entries:
            _, number, lease = heapq.heappop(self._entries)
            if self._places.has(lease, number):
                self._places.leave(lease)
                return lease
        raise IndexError("pop from an empty LeaseHeap")
