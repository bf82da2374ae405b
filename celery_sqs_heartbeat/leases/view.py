"""A read-only view of a lease."""

from __future__ import annotations

from typing import NamedTuple

from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus


class LeaseView(NamedTuple):
    """A lease at one moment, without the receipt handle. Times in seconds.

    It is a tuple, because thousands may be made while the keeper waits.

    Attributes:
        held_for: Since the first of its receives was sent.
        received_ago: Since its latest receive was sent.
        running_for: Since its task began; None while the task waits.
        expires_in: Until its expiry; negative after it.
        visibility_timeout: The last one that SQS confirmed.
        threshold: An extension is due when less than this is left.
        ended_for: Since its goal became delete or release; None while it is held.
        extensions: How many SQS has confirmed since its latest receive.
        attempts: Failed tries since the last confirmed success.
        group: The message's group; None without one.
        sequence_number: Its digits in a FIFO queue; None elsewhere.
        is_in_order: Whether its message is kept in the order of its group.
    """

    queue_url: str
    message_id: str
    task: str | None
    task_id: str | None
    receive_count: int
    goal: Goal
    status: LeaseStatus
    held_for: float
    received_ago: float
    running_for: float | None
    expires_in: float
    visibility_timeout: int
    threshold: float
    ended_for: float | None
    extensions: int
    attempts: int
    group: str | None = None
    sequence_number: str | None = None
    is_in_order: bool = False

    @classmethod
    def of(cls, lease: Lease, now: float) -> LeaseView:
        """Return the view of a lease at `now`, in monotonic seconds."""
        return cls(
            lease.queue_url,
            lease.message_id,
            lease.task,
            lease.task_id,
            lease.receive_count,
            lease.goal,
            lease.status,
            now - lease.held_since,
            now - lease.received_at,
            None if lease.started_at is None else now - lease.started_at,
            lease.expires_at - now,
            lease.last_timeout,
            lease.terms.threshold,
            None if lease.goal is Goal.HOLD else now - lease.asked_at,
            lease.extensions,
            lease.attempts,
            lease.group,
            lease.sequence_number,
            lease.is_in_order,
        )
