"""Classifies a received message: new, already held, finished, or not to be run."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.stale_calls import StaleCalls

#: How old a receive may be on its arrival if its visibility timeout is unknown, in seconds: the
#: longest poll (20 s; SQS API reference, ReceiveMessage, WaitTimeSeconds) and the shortest timeout.
#: Even an answer at the end of that poll may be someone else's by then, and a standard queue would
#: still confirm its extension.
UNKNOWN_LASTS = 21


class ReceivedAs(enum.Enum):
    """What a received message means to its receiver."""

    #: Run it.
    NEW = "new"
    #: It still runs, or waits, here. Its lease continues under the new handle. Don't run it.
    REDELIVERED = "redelivered"
    #: Its task has already succeeded, and it is being deleted. Don't run it.
    FINISHED = "finished"
    #: It was delayed on its way, and may be someone else's by now. Don't run it.
    LAPSED = "lapsed"
    #: An earlier release of it is in flight, and may end this lease at any moment. Don't run it.
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """One receive of one message. Times are monotonic seconds.

    Attributes:
        hidden_for: The visibility timeout that the receive began with, in seconds; 0 if unknown.
        sent_at: When the receive was sent.
        arrived_at: When its answer arrived.
        task: The name of the message's task, if known.
        max_receive_count: From the queue's redrive policy; None without one, or if unknown.
        sent_time: When the message was sent, in Unix seconds of SQS's clock, if SQS returned it.
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
        """The message's identity, which is the same for all its deliveries."""
        return (self.queue_url, self.message_id)

    @property
    def has_lapsed(self) -> bool:
        """Whether its visibility timeout had expired when it arrived, or may have if unknown."""
        return self.arrived_at >= self.sent_at + (self.hidden_for or UNKNOWN_LASTS)

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
        """Copy the details of the message and its queue from this receive to a lease."""
        lease.max_receive_count = self.max_receive_count
        lease.sent_time, lease.first_received_time = self.sent_time, self.first_received_time
        lease.group, lease.sequence_number = self.group, self.sequence_number

    def is_older_than(self, lease: Lease) -> bool:
        """Return whether SQS answered it before the latest receive of the lease."""
        return lease.is_newer_than(self.receive_count, self.sent_at)


def receipt_of(
    receive: Receive, lease: Lease | None, *, is_finished: bool, stale_calls: StaleCalls
) -> ReceivedAs:
    """Classify a received message.

    Args:
        lease: The lease on it, if any.
        is_finished: Whether its task has succeeded here.
        stale_calls: The stale calls by older handles. A release among them prevents only one run of
            the message.
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
    is_released = stale_calls.releases(key, handle, receive.sent_at, receive.arrived_at)
    if is_released and stale_calls.spare(key, handle):
        return ReceivedAs.RELEASED
    return ReceivedAs.FINISHED if is_finished else ReceivedAs.NEW
