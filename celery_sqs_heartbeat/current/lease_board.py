"""Shows the keeper's leases to other processes."""

from __future__ import annotations

from celery_sqs_heartbeat.current.record import Record, key_of
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.leases.lease import Lease


class LeaseBoard:
    """Writes every lease that has a place to a table, including how it ended.

    One process writes, under its keeper's lock. See `leases.register.Board`, and `places`.
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
