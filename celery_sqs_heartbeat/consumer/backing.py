"""What keeps a consumer's leases: threads of its own process, or another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.receipts import Receipt
from celery_sqs_heartbeat.leases.view import LeaseView


class Backing(Protocol):
    """What `LeaseKeeper` stands on; see there for what each method is for."""

    def start(self) -> None:
        """Begin to keep. Does nothing when it does already."""

    def stop(self, timeout: float) -> None:
        """Flush for so many seconds at the most, then end."""

    def flush(self, timeout: float) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long."""

    def now(self) -> float:
        """Return the time of its clock, in seconds."""

    def __len__(self) -> int:
        """How many messages it keeps."""

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""

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

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms."""

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds."""

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins."""

    def drop(self, receipt_handle: str) -> bool:
        """Stop extending."""

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good."""

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours."""

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now."""

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether the message is not ours any more."""

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle."""

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return what is to be seen of every lease."""
