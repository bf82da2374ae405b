"""The calls that a book plans, and SQS's possible answers to each of their entries."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.lease import SQS, Action, IdentityEnum, Lease

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
