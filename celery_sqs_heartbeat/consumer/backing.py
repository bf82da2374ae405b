"""The two ways to keep a consumer's leases: on threads of its process, or in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs


class Backing(Protocol):
    """The part of `LeaseKeeper` that runs the keeper; see there for the methods."""

    def start(self) -> None:
        """Start keeping leases. Does nothing if it has started already."""

    def stop(self, timeout: float) -> None:
        """Flush for at most `timeout` seconds, then end."""

    def flush(self, timeout: float) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long."""

    @property
    def health(self) -> KeeperHealth:
        """The health of the keeper. Returns at once."""

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
    ) -> ReceivedAs:
        """Begin a lease on a message, or continue the one it has."""
