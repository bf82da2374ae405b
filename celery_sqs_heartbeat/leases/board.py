"""The interface through which a book shows its leases to readers."""

from __future__ import annotations

from typing import Protocol

from celery_sqs_heartbeat.leases.lease import Lease


class Board(Protocol):
    """Called for every change of a lease, under the keeper's lock.

    It must be fast, raise nothing, and not change the lease.
    """

    def show(self, lease: Lease) -> None:
        """Show a lease that is new or has changed."""

    def remove(self, lease: Lease) -> None:
        """Remove a lease that the book has forgotten."""
