"""What a book plans and reports: calls, SQS's answers to them, events, and a keeper's health."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.lease import (
    SQS,
    Action,
    Goal,
    IdentityEnum,
    Lease,
    MessageFacts,
    facts_of,
)

#: Calls in flight over all queues. One connection makes 10 to 100 calls a second.
MAX_CALLS = 16
#: An additional poll requests at least one part of this many of the prefetch count, if that is
#: less than a full answer. More parts would cost more receives per task.
_PARTS = 4


class CallKind(IdentityEnum):
    """The SQS action of a call: extensions and releases share one."""

    CHANGE_VISIBILITY = "ChangeMessageVisibility"
    DELETE = "DeleteMessage"


class Outcome(IdentityEnum):
    """The result of one entry."""

    #: SQS confirmed it.
    DONE = "done"
    #: The receipt handle is no longer ours, or the message is gone.
    LOST = "lost"
    #: Refused, because it would hide the message past 12 hours after the receive.
    CAPPED = "capped"
    #: Too many calls; nothing was done.
    THROTTLED = "throttled"
    #: A temporary error, in SQS's answer or before sending; nothing was done.
    FAILED = "failed"
    #: No permission; nothing was done.
    DENIED = "denied"
    #: The queue does not exist, or SQS does not show it to us; nothing was done.
    NO_QUEUE = "no-queue"
    #: SQS can't parse it; sending it again does not help.
    MALFORMED = "malformed"
    #: SQS answered with an internal error: it was done before that answer, or not at all.
    UNSURE = "unsure"
    #: No usable answer: it may have been done, or may still be done, or not.
    UNKNOWN = "unknown"


#: Answers with which SQS refuses a whole queue, until a policy or the queue is restored.
REFUSALS = frozenset({Outcome.DENIED, Outcome.NO_QUEUE})


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in a call. `timeout` is in seconds and unused by a delete.

    Attributes:
        limit: For how many seconds an extension counts at most, even if `timeout` is longer.
    """

    lease: Lease
    receipt_handle: str = field(repr=False)
    action: Action
    timeout: int = 0
    limit: float = math.inf


@dataclass(frozen=True, slots=True)
class Call:
    """One batch request: at most ten entries of one queue.

    Attributes:
        planned_at: Monotonic seconds, never later than the sending. Confirmed
            timeouts count from here.
        number: The number of the call in its book, from 1.
    """

    kind: CallKind
    queue_url: str
    entries: tuple[Entry, ...]
    planned_at: float
    number: int = 0

    @property
    def send_by(self) -> float:
        """Until when it may be sent, in monotonic seconds; infinity for a call without releases.

        A release that is sent after its lease has expired could make a message visible that
        someone else has received since.
        """
        releases = [entry for entry in self.entries if entry.action is Action.RELEASE]
        return min((entry.lease.expires_at for entry in releases), default=math.inf)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one entry of a call."""

    call: Call
    entry: Entry
    outcome: Outcome


def least_beside(prefetch_count: int) -> int:
    """Return how many messages an additional poll requests at least."""
    return min(SQS.most_received, math.ceil(prefetch_count / _PARTS))


#: The cause of a release by the keeper of a worker that has died.
WORKER_DIED = "worker died"
#: The cause of a release that leaves a message with SQS until its task is due.
DUE_LATER = "due later"
#: The cause of a release of a message that has not reached its consumer.
NOT_DELIVERED = "not delivered"
#: Causes of releases that say nothing about the message: its worker could not run it (yet).
HANDED_ON = frozenset({DUE_LATER, "shutdown", NOT_DELIVERED, "consumer closed", "cancelled"})
#: The cause of the delete of a message that was sent again instead of being released.
SENT_AGAIN = "sent again"
#: Causes of letting a message's visibility timeout expire, in this order: its task failed or was
#: rejected, and its release policy keeps it; too little of its lease was left to start the task;
#: Celery could not make a task of it; nothing will ack or reject it any more.
KEPT, ARRIVED_LATE, UNDELIVERABLE, UNSETTLED = (
    "kept",
    "arrived late",
    "undeliverable",
    "not settled",
)

#: So many calls of one queue may hang. Each occupies a thread until it returns, and the other
#: queues need threads, too. A worker replaces a keeper with as many hanging calls in all.
MOST_HANGING = 32


class EventKind(IdentityEnum):
    """The kinds of events that a book reports."""

    MESSAGE_RECEIVED = "message-received"
    #: The pool runs the message's task.
    TASK_STARTED = "task-started"
    LEASE_EXTENDED = "lease-extended"
    #: A try failed and will be repeated.
    EXTENSION_FAILED = "extension-failed"
    LEASE_EXPIRED = "lease-expired"
    LEASE_LOST = "lease-lost"
    LEASE_CAPPED = "lease-capped"
    #: Nine tenths of the lease's maximum time have passed, or it was extended for the last time.
    LEASE_CAP_NEAR = "lease-cap-near"
    MESSAGE_RELEASED = "message-released"
    #: Not released: it becomes visible when its visibility timeout expires.
    MESSAGE_LAPSING = "message-lapsing"
    MESSAGE_DELETED = "message-deleted"
    #: A try failed and will be repeated.
    DELETE_FAILED = "delete-failed"
    #: The delete can't succeed. The message becomes visible, and is deleted at its next receive.
    DELETE_ABANDONED = "delete-abandoned"
    #: SQS refused an action on a queue for the first time, because a permission is missing.
    PERMISSION_DENIED = "permission-denied"
    #: SQS accepts an action again that it had refused.
    PERMISSION_GRANTED = "permission-granted"


#: The events after which a message may become someone else's at any moment, with their names.
LOSSES = {
    EventKind.LEASE_EXPIRED: "expired",
    EventKind.LEASE_LOST: "lost",
    EventKind.LEASE_CAPPED: "capped",
}
#: The events after which SQS delivers a message again.
GOING_BACK = frozenset({EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING})


@dataclass(slots=True, kw_only=True)
class Event(MessageFacts):
    """One event of a lease. `at` is in monotonic seconds.

    Do not change it. It is not frozen, because every extension makes one, and that would take
    three times as long.

    Attributes:
        visibility_timeout: The last one requested from SQS, in seconds.
        slack: Seconds that were left of the lease at this event; negative after its expiry.
        held_for: Seconds since the first of its receives was sent.
        ended_for: Seconds since its goal became delete or release; None while it is held.
        cause: Why the message is released or let expire, or what it was received as.
        stops_group: Whether it was the first of a message group that is kept in order, and was
            released or let expire. The messages behind it wait until it is received again.
        action: The action of the call. This and all that follow are set only if a call was made.
        outcome: The outcome of the call's entry.
        call_number: The number of the call in its keeper, from 1.
        batch: How many entries the call had.
        seconds: From the planning of the call to its answer.
    """

    kind: EventKind
    at: float
    slack: float
    visibility_timeout: int = 0
    held_for: float = 0.0
    ended_for: float | None = None
    cause: str = ""
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
        """Return the event, with all details of the lease."""
        call, entry = (answer.call, answer.entry) if answer is not None else (None, None)
        is_delete = entry is not None and entry.action is Action.DELETE
        return cls(
            *facts_of(lease),
            kind=kind,
            at=now,
            slack=lease.expires_at - now,
            visibility_timeout=entry.timeout if entry and not is_delete else lease.last_timeout,
            held_for=now - lease.held_since,
            ended_for=None if lease.goal is Goal.HOLD else now - lease.asked_at,
            cause=cause or lease.cause,
            stops_group=stops_group,
            action=entry.action if entry else None,
            outcome=answer.outcome if answer else None,
            call_number=call.number if call else 0,
            batch=len(call.entries) if call else 0,
            seconds=now - call.planned_at if call else 0.0,
        )


def named(it: MessageFacts) -> str:
    """Return the words for the message of an event or a lease, for the log."""
    return f"message {it.message_id} of {it.queue_url}, task {it.task}[{it.task_id}]"


def loss_of(event: Event) -> str | None:
    """Return how a lease was lost: expired, lost or capped; None if it was not.

    If the keeper gives up a lease some time after its expiry, that is not a second loss.
    """
    if event.kind is EventKind.LEASE_LOST and event.outcome is None:
        return None
    return LOSSES.get(event.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperHealth:
    """The health of a keeper, and of its worker's event loop, at one moment.

    Attributes:
        alive: Whether the keeper's thread runs. False before its start, after its end, and in a
            forked child.
        last_tick_age: Seconds since its last tick began; None before the first.
        late: Whether its next tick is overdue by more than leases can survive.
        replaced: How often it died and was replaced.
        hanging: How many calls were given up and have not returned. Each occupies a thread.
        loop_age: Seconds since the worker's event loop last turned; None if no loop is watched:
            without a worker, while it is not connected, and during its shutdown.
        stalled: Whether `loop_age` is too long for a loop that works.
        connected: Whether the worker is connected to SQS. False before it has connected for the
            first time, and while it connects again; True without a worker.
        standstills: How often nothing in the process ran: it was stopped, its machine was
            suspended, or something let no other thread run.
    """

    alive: bool = False
    last_tick_age: float | None = None
    late: bool = False
    replaced: int = 0
    standstills: int = 0
    hanging: int = 0
    loop_age: float | None = None
    stalled: bool = False
    connected: bool = True
