"""What a received message is to its receiver: new, here already, finished, or not its own.

Both processes of a worker decide by these rules: the one that receives, as it can't wait for the
other, and the keeper for consumers that have it in their own process.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.stale_calls import StaleCalls


class ReceivedAs(enum.Enum):
    """What a received message means to its receiver."""

    #: Run it.
    NEW = "new"
    #: It still runs, or waits, here: its lease goes on under the new handle. Don't run it.
    REDELIVERED = "redelivered"
    #: Its task has ended well already: it is being deleted. Don't run it.
    FINISHED = "finished"
    #: It was held up on its way, and may be someone else's by now. Don't run it.
    LAPSED = "lapsed"
    #: An older release of it is under way, and may end this lease at any moment. Don't run it.
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """One receive of one message. Times are monotonic seconds.

    Attributes:
        hidden_for: The visibility timeout that the receive began with, in seconds.
        sent_at: When the receive was asked for.
        arrived_at: When its answer was in.
        task: The name of the message's task, where it is known.
        max_receive_count: Of the queue's redrive policy; None without one, or where not known.
        sent_time: When the message was sent, in Unix seconds of SQS's clock, where SQS said so.
        first_received_time: When the message was first received, likewise.
        group: Its message group; None without one.
        sequence_number: Its digits in a FIFO queue, which grow within the group; None elsewhere.
    """

    queue_url: str
    message_id: str
    receipt_handle: str = field(repr=False)
    receive_count: int
    hidden_for: int
    sent_at: float
    arrived_at: float
    task: str | None = None
    task_id: str | None = None
    max_receive_count: int | None = None
    sent_time: float | None = None
    first_received_time: float | None = None
    group: str | None = None
    sequence_number: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the message, the same over redeliveries."""
        return (self.queue_url, self.message_id)

    @property
    def has_lapsed(self) -> bool:
        """Whether it arrived when its visibility timeout was over."""
        return bool(self.hidden_for) and self.arrived_at >= self.sent_at + self.hidden_for

    def new_lease(self, terms: LeaseTerms) -> Lease:
        """Return a lease on the message that begins with this receive."""
        return Lease(
            queue_url=self.queue_url,
            message_id=self.message_id,
            terms=terms,
            held_since=self.sent_at,
            task=self.task,
            task_id=self.task_id,
        )

    def describe(self, lease: Lease) -> None:
        """Write into a lease what is known of its message and queue as of this receive."""
        lease.max_receive_count = self.max_receive_count
        lease.sent_time, lease.first_received_time = self.sent_time, self.first_received_time
        lease.group, lease.sequence_number = self.group, self.sequence_number

    def is_older_than(self, lease: Lease) -> bool:
        """Return whether SQS made it before the latest receive of the lease."""
        return lease.is_newer_than(self.receive_count, self.sent_at)


def receipt_of(
    receive: Receive, lease: Lease | None, *, is_finished: bool, strays: StaleCalls
) -> ReceivedAs:
    """Return what a message is.

    Args:
        lease: The lease on it that its receiver has, if any.
        is_finished: Whether a task of the receiver's has ended well with it.
        strays: What older handles were used for. A release there that keeps the message from
            being run does so only this once.
    """
    if receive.has_lapsed:
        return ReceivedAs.LAPSED
    if lease is not None and receive.is_older_than(lease):
        if lease.goal is Goal.RELEASE:
            return ReceivedAs.LAPSED
        return ReceivedAs.FINISHED if lease.goal is Goal.DELETE else ReceivedAs.REDELIVERED
    is_here = lease is not None and lease.goal is not Goal.RELEASE
    if is_here:
        return (
            ReceivedAs.FINISHED if lease and lease.goal is Goal.DELETE else ReceivedAs.REDELIVERED
        )
    key, handle = receive.key, receive.receipt_handle
    is_released = strays.releases(key, handle, receive.sent_at, receive.arrived_at)
    if is_released and strays.spare(key, handle):
        return ReceivedAs.RELEASED
    return ReceivedAs.FINISHED if is_finished else ReceivedAs.NEW
