"""The leases of a keeper's book, for tests."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.lease import Lease


class Board:
    """Gets every change of a lease, as a real worker's board does."""

    def __init__(self) -> None:
        self._leases: dict[tuple[str, str], Lease] = {}

    def show(self, lease: Lease) -> None:
        """Note a lease that is new or has changed."""
        self._leases[lease.key] = lease

    def remove(self, lease: Lease) -> None:
        """Note that the book has forgotten a lease."""
        del self._leases[lease.key]

    def leases(self) -> list[Lease]:
        """Return the leases of the book."""
        return list(self._leases.values())

    def holds(self, lease: Lease) -> bool:
        """Return whether this very lease is still in the book."""
        return self._leases.get(lease.key) is lease
