"""What can be said, and asked, of a keeper's leases."""

from __future__ import annotations

from typing import Protocol

from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.view import LeaseView


class Leases(Protocol):
    """Leases on received messages, kept until their deletes are confirmed.

    May be called from any thread and raises nothing that SQS or the network does. Messages go
    by the receipt handles that they were received by, the older ones of a message, too. What
    returns a bool returns whether there was a lease for it, unless it says something else.
    """

    def __len__(self) -> int:
        """How many messages are kept."""

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle, as it is now. Read it only.

        It is the same object for as long as the lease lasts.
        """

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return what is to be seen of every lease, all at one moment."""

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins.

        Args:
            pid: The process that runs it; this one where it is None.
        """

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms."""

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds.

        Args:
            cause: Why, in a word or two, for the log, the metrics and the journal.
        """

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending: the message becomes visible by itself.

        Args:
            cause: Why it is left to that, for the log, the metrics and the journal; they say
                nothing where it is empty, as something else settles the message.
        """

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, also if its ack comes later."""

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours.

        Args:
            timeout: The longest wait, in seconds; False after that.
        """

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS says that the message is not ours any more, or we gave it up."""

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
