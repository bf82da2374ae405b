"""What the receiving side asks of the keeper of its leases."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs


class Keeping(Protocol):
    """Keeps leases: in this process (`ThreadKeeper`), or for it (`LinkedKeeper`).

    Attributes:
        is_behind: Whether nothing must be received now.
        ending: How many deletes and releases are not confirmed yet.
    """

    @property
    def is_behind(self) -> bool: ...  # noqa: D102

    @property
    def ending(self) -> int: ...  # noqa: D102

    def gathering(self) -> AbstractContextManager[None]:
        """Do what changes in the block require once, at its end."""

    def receive(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms,
        hidden_for: int,
        sent_at: float,
        max_receive_count: int | None = None,
        task: str | None = None,
        task_id: str | None = None,
    ) -> ReceivedAs:
        """Begin a lease on a message as SQS returned it, or continue the message's lease."""

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle."""

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again."""

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending."""

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for another of its group."""

    def now(self) -> float:
        """Return the time of its clock, in seconds."""
