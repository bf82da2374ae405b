"""What keeps a consumer's leases: threads of its own process, or another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.receipts import Receipt


class Backing(Protocol):
    """What `LeaseKeeper` stands on, besides its leases; see there for what each method is for."""

    def start(self) -> None:
        """Begin to keep. Does nothing when it does already."""

    def stop(self, timeout: float) -> None:
        """Flush for so many seconds at the most, then end."""

    def flush(self, timeout: float) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long."""

    @property
    def health(self) -> KeeperHealth:
        """How it does. Waits for nothing."""

    def receive(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms | None = None,
        hidden_for: int | None = None,
        sent_at: float | None = None,
        max_receive_count: int | None = None,
        task: str | None = None,
        task_id: str | None = None,
    ) -> Receipt:
        """Begin a lease on a message, or go on with the one it has."""
