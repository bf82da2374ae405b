"""The interface to a keeper's leases."""

from __future__ import annotations

from typing import Protocol

from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.view import LeaseView


class Leases(Protocol):
    """Leases on received messages, kept until their deletes are confirmed.

    Any thread may call it. No error of SQS or the network reaches the caller. A message is
    identified by any receipt handle under which it was received. Methods that return a bool
    return whether the message had a lease, unless they say otherwise.
    """

    def __len__(self) -> int:
        """How many messages have a lease."""

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the current lease that has, or once had, that handle. Do not change it.

        It is the same object until the lease ends.
        """

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all of the same moment."""

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins.

        Args:
            pid: The process that runs it; None for this one.
        """

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, and retry until SQS confirms."""

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds.

        Args:
            cause: The reason in a word or two, for the log, the metrics and the journal.
        """

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending, so that the lease expires.

        Args:
            cause: The reason, for the log, the metrics and the journal. If it is empty, nothing is
                reported, because something else acks or rejects the message.
        """

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, even if its ack comes later."""

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours.

        Args:
            timeout: The longest wait, in seconds; False after that.
        """

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours now, as far as we know."""

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether the message is no longer ours, according to SQS, or we gave it up."""

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
