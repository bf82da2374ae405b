"""Assigns leases to places in a table."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.current.record import Record, key_of
from celery_sqs_heartbeat.current.table import REACH, Table


class Places:
    """Gives leases their places in a table. One process does this, and writes their first records.

    From then on the keeper writes them, see `lease_board`. While there are leases without a place,
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
