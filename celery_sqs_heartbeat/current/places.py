"""Which lease has which place in a table."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.current.record import Record, key_of
from celery_sqs_heartbeat.current.table import REACH, Table


class Places:
    """Gives leases their places in a table. One process does, and writes their first records.

    From then on the keeper writes them, see `lease_board`. While there are leases without a place
    the table says so, so that none of them is taken for lost.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        # By place: the number of the removal that freed it, infinity while it is taken.
        self._freed = [0.0] * table.places
        self._removals = 0
        self._without = 0

    def take(self, receipt_handle: str, record: Record) -> int | None:
        """Give the claim that begins with a receipt handle its place, and write its record.

        None where there is no room: it has no place then as long as it lives.
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
        """Let others take the place of a claim that is over. It stays readable until one does.

        Args:
            place: As `take` gave it; None for a claim without one.
        """
        if place is None:
            self._without -= 1
            self._table.is_short = self._without > 0
        else:
            self._removals += 1
            self._freed[place] = self._removals

    def _find(self, key: bytes) -> int | None:
        """Return the place that is free for longest, so that ends can be read for long.

        Or that of its own key: a key has one record at the most.
        """
        place = self._table.place_of(key)
        if place is None:
            row = self._table.row(key)
            freed = self._freed[row : row + REACH]
            place = row + freed.index(min(freed))
        return None if self._freed[place] == math.inf else place
