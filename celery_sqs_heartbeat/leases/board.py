"""Where a book shows its leases to whoever may only look."""

from __future__ import annotations

from typing import Protocol

from celery_sqs_heartbeat.leases.lease import Lease


class Board(Protocol):
    """Told of every change of a lease, under the keeper's lock: it must be quick.

    It must raise nothing, and change nothing of the lease.
    """

    def show(self, lease: Lease) -> None:
        """Take in a lease that is new or has changed."""

    def remove(self, lease: Lease) -> None:
        """Take in that the book has forgotten a lease."""
