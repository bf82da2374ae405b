"""The places of a table, where a keeper writes its leases."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.current.table import REACH, Record, Table, key_of
from celery_sqs_heartbeat.leases.lease import Lease


class LeaseBoard:
    """Writes every lease to a table, including how it ended. See `leases.register.Board`.

    One process writes, under its keeper's lock. A lease gets its place when it is first shown, and
    keeps it: that of an earlier keeper, if it has one. While there are leases without a place, the
    table says so. Then none of them counts as lost.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        # By key: None for a lease that found no place.
        self._places: dict[bytes, int | None] = {}
        # By place: the number of the removal that freed it, infinity while it is taken.
        self._freed = [0.0] * table.places
        self._removals = 0
        self._without = 0

    def show(self, lease: Lease) -> None:
        """Write down a lease that is new or has changed."""
        key = key_of(lease.handles[0])
        place = self._places[key] if key in self._places else self._take(key)
        if place is not None:
            self._table.write(place, key, Record.of(lease))

    def remove(self, lease: Lease) -> None:
        """Write down how a lease has ended. That stays readable until another takes its place."""
        key = key_of(lease.handles[0])
        if key not in self._places:
            # It ended before it was shown.
            return
        place = self._places.pop(key)
        if place is None:
            self._without -= 1
            self._table.is_short = self._without > 0
        else:
            self._removals += 1
            self._freed[place] = self._removals
            self._table.write(place, key, Record.of(lease, is_over=True))

    def note_all_shown(self) -> None:
        """Note that every lease of an earlier keeper was shown by now."""
        self._table.is_short = self._without > 0

    def _take(self, key: bytes) -> int | None:
        place = self._places[key] = self._find(key)
        if place is None:
            self._without += 1
            self._table.is_short = True
        else:
            self._freed[place] = math.inf
        return place

    def _find(self, key: bytes) -> int | None:
        """Return the place that has been free longest, so ends stay readable for long.

        If the key has a record, return its place: a key has at most one record.
        """
        place = self._table.place_of(key)
        if place is None:
            row = self._table.row(key)
            freed = self._freed[row : row + REACH]
            place = row + freed.index(min(freed))
        return None if self._freed[place] == math.inf else place
