"""What happened to a lease, for whoever logs, counts or journals it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from celery_sqs_heartbeat.leases.calls import Answer, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease

#: The cause of a release that leaves a message to SQS until its task is due.
DUE_LATER = "due later"
#: Causes of leaving a message to its visibility timeout: its task failed or was rejected, and its
#: policy says so; too little of its lease was left to start it; Celery could make no task of it;
#: nothing settles it any more.
KEPT, ARRIVED_LATE, UNDELIVERABLE, UNSETTLED = (
    "kept",
    "arrived late",
    "undeliverable",
    "not settled",
)


class EventKind(enum.Enum):
    """The kinds of event that a book reports."""

    MESSAGE_RECEIVED = "message-received"
    #: The pool runs the message's task.
    TASK_STARTED = "task-started"
    LEASE_EXTENDED = "lease-extended"
    #: A try failed and will be repeated.
    EXTENSION_FAILED = "extension-failed"
    LEASE_EXPIRED = "lease-expired"
    LEASE_LOST = "lease-lost"
    LEASE_CAPPED = "lease-capped"
    #: Nine tenths of the time that the lease may last are over, or it was extended for
    #: the last time.
    LEASE_CAP_NEAR = "lease-cap-near"
    MESSAGE_RELEASED = "message-released"
    #: Not released: it becomes visible by itself when its timeout ends.
    MESSAGE_LAPSING = "message-lapsing"
    MESSAGE_DELETED = "message-deleted"
    #: A try failed and will be repeated.
    DELETE_FAILED = "delete-failed"
    #: The delete can't ever succeed; the message will come back and be deleted then.
    DELETE_ABANDONED = "delete-abandoned"
    #: The first refusal of an SQS action on a queue for want of a permission.
    PERMISSION_DENIED = "permission-denied"
    #: An action that had been refused works again.
    PERMISSION_GRANTED = "permission-granted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened. `at` is in monotonic seconds.

    Attributes:
        receipt_handle: Of the latest receive. It is a credential: show nobody.
        visibility_timeout: That SQS was last asked for, in seconds.
        slack: Seconds that were left of the lease when this happened; negative
            after its expiry.
        held_for: Seconds since the first of its receives was asked for.
        ended_for: Seconds since its delete or release was asked for; None while it is held.
        cause: Why the message is given back, or what it was received as.
        max_receive_count: After how many receives SQS moves the message to the dead-letter queue;
            None where it does not, or that is not known.
        sent_time: When the message was sent, in Unix seconds of SQS's clock, if SQS said so.
        first_received_time: When it was first received, likewise.
        group: Its message group; None without one.
        sequence_number: Its digits in a FIFO queue, which grow within the group; None elsewhere.
        stops_group: It was the first of a message group that is kept in order, and goes back: those
            behind it wait until it comes again.
        action: What the call was to do, where a call was made, as all that follows.
        outcome: What SQS made of it.
        call_number: Tells the calls of a keeper apart, from 1.
        batch: Entries of the call.
        seconds: From the planning of the call to its answer.
    """

    kind: EventKind
    at: float
    queue_url: str
    message_id: str
    task: str | None
    task_id: str | None
    receive_count: int
    slack: float
    receipt_handle: str = field(default="", repr=False)
    visibility_timeout: int = 0
    held_for: float = 0.0
    ended_for: float | None = None
    cause: str = ""
    max_receive_count: int | None = None
    sent_time: float | None = None
    first_received_time: float | None = None
    group: str | None = None
    sequence_number: str | None = None
    stops_group: bool = False
    action: Action | None = None
    outcome: Outcome | None = None
    call_number: int = 0
    batch: int = 0
    seconds: float = 0.0

    @classmethod
    def of(
        cls,
        kind: EventKind,
        lease: Lease,
        now: float,
        answer: Answer | None = None,
        cause: str = "",
        *,
        stops_group: bool = False,
    ) -> Event:
        """Return the event with everything that the lease tells."""
        event = cls(
            kind=kind,
            at=now,
            queue_url=lease.queue_url,
            message_id=lease.message_id,
            task=lease.task,
            task_id=lease.task_id,
            receive_count=lease.receive_count,
            slack=lease.expires_at - now,
            receipt_handle=lease.receipt_handle,
            visibility_timeout=lease.last_timeout,
            held_for=now - lease.held_since,
            ended_for=None if lease.goal is Goal.HOLD else now - lease.asked_at,
            cause=cause or lease.cause,
            max_receive_count=lease.max_receive_count,
            sent_time=lease.sent_time,
            first_received_time=lease.first_received_time,
            group=lease.group,
            sequence_number=lease.sequence_number,
            stops_group=stops_group,
        )
        if answer is None:
            return event
        call, entry = answer.call, answer.entry
        return replace(
            event,
            visibility_timeout=(
                event.visibility_timeout if entry.action is Action.DELETE else entry.timeout
            ),
            action=entry.action,
            outcome=answer.outcome,
            call_number=call.number,
            batch=len(call.entries),
            seconds=now - call.planned_at,
        )
