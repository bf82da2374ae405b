"""A board whose leases get places as in a worker, for tests of what it shows."""

from __future__ import annotations

from celery_sqs_heartbeat.current.places import LeaseBoard, Places
from celery_sqs_heartbeat.current.sharing import share_table
from celery_sqs_heartbeat.current.table import Record, Table
from celery_sqs_heartbeat.leases.lease import Lease


class SeatedBoard:
    """Both sides of a worker's board at once: assigns places, and shows leases in them."""

    def __init__(self, table: Table) -> None:
        self._board, self._places = LeaseBoard(table), Places(table)
        self._seated: dict[Lease, int | None] = {}

    def show(self, lease: Lease) -> None:
        """Note a lease that is new or has changed."""
        if lease not in self._seated:
            handle = lease.handles[0]
            self._seated[lease] = self._places.take(handle, Record.of(lease))
            self._board.assign(handle, self._seated[lease])
        self._board.show(lease)

    def remove(self, lease: Lease) -> None:
        """Note that the book has forgotten a lease."""
        self._board.remove(lease)
        if lease in self._seated:
            self._places.free(self._seated.pop(lease))


def share_board(leases: int) -> SeatedBoard:
    """Return a board on a table that this process's children can read."""
    return SeatedBoard(share_table(leases))
