"""The places of a table: the worker assigns them to leases, then the keeper writes there."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.current.table import REACH, Record, Table, key_of
from celery_sqs_heartbeat.leases.lease import Lease


class Places:
    """Gives leases their places in a table. One process does this, and writes their first records.

    From then on the keeper writes them, see `LeaseBoard`. While there are leases without a place,
    the table says so. Then none of them counts as lost.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        # By place: the number of the removal that freed it, infinity while it is taken.
        self._freed = [0.0] * table.places
        self._removals = 0
        self._without = 0

    def take(self, receipt_handle: str, record: Record) -> int | None:
        """Give the claim that begins with a receipt handle its place, and write its record.

        None if there is no room: the claim then never gets a place.
        """
        key = key_of(receipt_handle)
        place = self._find(key)
        if place is None:
            self._without += 1
            self._table.is_short = True
        else:
            self._freed[place] = math.inf
            self._table.write(place, key, record)
        return place

    def free(self, place: int | None) -> None:
        """Free the place of a claim that has ended. It stays readable until another takes it.

        Args:
            place: As `take` returned it; None for a claim without one.
        """
        if place is None:
            self._without -= 1
            self._table.is_short = self._without > 0
        else:
            self._removals += 1
            self._freed[place] = self._removals

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


class LeaseBoard:
    """Writes every lease that has a place to a table, including how it ended.

    One process writes, under its keeper's lock. See `leases.register.Board`, and `Places`.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._places: dict[bytes, tuple[int, int]] = {}

    def assign(self, receipt_handle: str, place: int | None, receives: int = 1) -> None:
        """Note the place of the claim that began with a receipt handle.

        Args:
            place: None if it has none.
            receives: How many receives of the message its owner knows of.
        """
        if place is not None:
            self._places[key_of(receipt_handle)] = (place, receives)

    def show(self, lease: Lease) -> None:
        """Write down a lease that is new or has changed."""
        key = key_of(lease.handles[0])
        place, receives = self._places.get(key, (None, 0))
        if place is not None:
            self._table.write(place, key, Record.of(lease, receives=receives))

    def remove(self, lease: Lease) -> None:
        """Write down how a lease has ended."""
        key = key_of(lease.handles[0])
        place, receives = self._places.pop(key, (None, 0))
        if place is not None:
            self._table.write(place, key, Record.of(lease, is_over=True, receives=receives))
