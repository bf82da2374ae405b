"""Shows the keeper's leases to other processes."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.current.record import Record, key_of
from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.leases.lease import Lease


class LeaseBoard:
    """Writes every lease to a table, and how it ended, until its place is needed.

    A lease that finds no place gets one at its next change, if there is one then; meanwhile
    the table says that such leases exist, so that none of them is taken for lost.

    One process writes, under its keeper's lock. See `leases.board.Board`.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._taken: dict[Lease, tuple[int, bytes]] = {}
        self._waiting: set[Lease] = set()
        # By place: the number of the removal that freed it, infinity while it is taken.
        self._freed = [0.0] * table.places
        self._removals = 0

    def show(self, lease: Lease) -> None:
        """Write down a lease that is new or has changed."""
        taken = self._taken.get(lease) or self._take(lease)
        if taken is None:
            self._waiting.add(lease)
        else:
            self._table.write(*taken, Record.of(lease))
            self._waiting.discard(lease)
        self._table.is_short = bool(self._waiting)

    def remove(self, lease: Lease) -> None:
        """Write down how a lease has ended. Its place may be taken from now on."""
        taken = self._taken.pop(lease, None)
        if taken is not None:
            self._table.write(*taken, Record.of(lease, is_over=True))
            self._removals += 1
            self._freed[taken[0]] = self._removals
        self._waiting.discard(lease)
        self._table.is_short = bool(self._waiting)

    def _take(self, lease: Lease) -> tuple[int, bytes] | None:
        """Take the place that is free for longest, so that ends can be read for long.

        Or that of its own key: a key has one record at the most.
        """
        key = key_of(lease.handles[0])
        place = self._table.place_of(key)
        if place is None:
            row = self._table.row(key)
            freed = self._freed[row : row + REACH]
            place = row + freed.index(min(freed))
        if self._freed[place] == math.inf:
            return None
        self._freed[place] = math.inf
        taken = self._taken[lease] = (place, key)
        return taken
