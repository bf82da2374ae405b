"""The calls that a book plans and what SQS can answer to each of their entries."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.lease import Action, Lease

#: Calls in flight over all queues. One connection makes 10 to 100 calls a second.
MAX_CALLS = 16
#: Entries in one batch request (SQS API reference, ChangeMessageVisibilityBatch).
MAX_BATCH_ENTRIES = 10


class CallKind(enum.Enum):
    """The SQS action of a call: extensions and releases share one."""

    CHANGE_VISIBILITY = "ChangeMessageVisibility"
    DELETE = "DeleteMessage"


class Outcome(enum.Enum):
    """What became of one entry."""

    #: SQS confirmed it.
    DONE = "done"
    #: The receipt handle is not ours any more, or the message is gone.
    LOST = "lost"
    #: Refused: it would reach past 12 hours after the receive.
    CAPPED = "capped"
    #: Too many calls; nothing was done.
    THROTTLED = "throttled"
    #: A passing fault, answered or hit before sending; nothing was done.
    FAILED = "failed"
    #: No permission; nothing was done.
    DENIED = "denied"
    #: SQS knows no such queue, or does not show it to us; nothing was done.
    NO_QUEUE = "no-queue"
    #: SQS can't make sense of it; sending it again will not help.
    MALFORMED = "malformed"
    #: SQS answered that it failed within: it was done before that answer, or not at all.
    UNSURE = "unsure"
    #: No usable answer: it may or may not have been done, and may still be.
    UNKNOWN = "unknown"


#: Answers that refuse a whole queue: they may end when a policy or the queue is back.
REFUSALS = frozenset({Outcome.DENIED, Outcome.NO_QUEUE})


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in a call. `timeout` is in seconds and unused by a delete.

    Attributes:
        limit: For how long an extension counts at most, in seconds, though it asks for more.
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
        number: Tells the calls of a book apart, from 1.
    """

    kind: CallKind
    queue_url: str
    entries: tuple[Entry, ...]
    planned_at: float
    number: int = 0

    @property
    def send_by(self) -> float:
        """Until when it may be sent, in monotonic seconds; infinity for a call without releases.

        A release that is sent once its lease is over could make a message visible that someone
        else has received since.
        """
        releases = [entry for entry in self.entries if entry.action is Action.RELEASE]
        return min((entry.lease.expires_at for entry in releases), default=math.inf)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call brought to one of its entries."""

    call: Call
    entry: Entry
    outcome: Outcome
