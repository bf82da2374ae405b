"""Our claim on one received message: what we know of it, our goal for it, and a view to read."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import NamedTuple

#: The longest lease by default: five seconds below the hard limit, as the
#: SQS Developer Guide advises, so that a request delayed on its way is not refused.
DEFAULT_MAX_LEASE_SECONDS = 43_195.0

#: Extend when less than this part of the visibility timeout is left. Two thirds of it
#: pass without a call, and the last third has room for many retries.
DEFAULT_THRESHOLD_PART = 1 / 3


class SQS:
    """The limits of SQS. Times are in seconds.

    SQS API reference: ReceiveMessage, ChangeMessageVisibilityBatch, DeleteMessageBatch. The longest
    hold: SQS Developer Guide, "Visibility timeout".

    Attributes:
        most_received: The most messages that one receive returns.
        most_entries: The most entries of one call that extends and releases, or deletes.
        longest_timeout: The longest visibility timeout.
        longest_hold: How long a message stays hidden after its receive at most.
        longest_wait: The longest long poll.
    """

    most_received = most_entries = 10
    longest_timeout = longest_hold = 43_200
    longest_wait = 20


class IdentityEnum(enum.Enum):
    """An enum whose members hash by identity, as each of them exists once.

    The hash of `Enum` is a function in Python, and each extension of a lease needs fifteen hashes.
    """

    __hash__ = object.__hash__


class Action(IdentityEnum):
    """What an entry of a call does to its message."""

    EXTEND = "extend"
    RELEASE = "release"
    DELETE = "delete"


class Goal(IdentityEnum):
    """What the owner of a message wants for its lease. It never returns to HOLD."""

    HOLD = "hold"
    DELETE = "delete"
    RELEASE = "release"


class LeaseStatus(IdentityEnum):
    """How good our claim is, as far as we know."""

    #: Confirmed, and not yet past its expiry.
    OWNED = "owned"
    #: Our clock passed the expiry without a confirmation. The message may still be ours.
    EXPIRED = "expired"
    #: SQS answered that the receipt handle is no longer ours, or we gave up.
    LOST = "lost"
    #: It reached `max_lease` or SQS's 12 hours and is no longer extended.
    CAPPED = "capped"
    #: The queue refuses extensions. It is probed, and the lease is ours until it expires.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """The rules for one lease. All times in seconds.

    Attributes:
        extend_late: Whether to extend it after it has expired, while its task runs or waits.
            Not if the task is stopped then: no one would need the hidden message.
        in_order: Whether messages of one group of a FIFO queue run one after the other.
    """

    visibility_timeout: int
    threshold: float
    max_lease: float = DEFAULT_MAX_LEASE_SECONDS
    extend: bool = True
    extend_late: bool = True
    in_order: bool = False

    @classmethod
    def of(cls, visibility_timeout: int, threshold: float | None = None) -> LeaseTerms:
        """Return terms with the default threshold, a third of the visibility timeout."""
        if threshold is None:
            threshold = visibility_timeout * DEFAULT_THRESHOLD_PART
        return cls(visibility_timeout=visibility_timeout, threshold=threshold)

    def with_room(self) -> LeaseTerms:
        """Return the terms, with the default threshold if theirs is not below the timeout.

        Otherwise the next extension would be due at the moment when the last is confirmed.
        """
        if self.threshold < self.visibility_timeout:
            return self
        return replace(self, threshold=self.visibility_timeout * DEFAULT_THRESHOLD_PART)


@dataclass(slots=True, eq=False)
class MessageFacts:
    """What SQS and its sender say of a received message. A receive, a lease and an event have it.

    Attributes:
        receipt_handle: Of the latest receive. It is a credential: never show it.
        receive_count: SQS's count of its receives.
        max_receive_count: From its queue's redrive policy: after so many receives, SQS moves it to
            the dead-letter queue. None without one, or if unknown.
        sent_time: When it was sent, in Unix seconds of SQS's clock, if SQS returned it.
        first_received_time: When it was first received, likewise.
        group: Its message group; None without one.
        sequence_number: Its digits in a FIFO queue, which grow within the group; None elsewhere.
    """

    queue_url: str
    message_id: str
    task: str | None = None
    task_id: str | None = None
    receipt_handle: str = field(default="", repr=False)
    receive_count: int = 0
    max_receive_count: int | None = None
    sent_time: float | None = None
    first_received_time: float | None = None
    group: str | None = None
    sequence_number: str | None = None


#: Returns the values of these fields, in their order.
facts_of = attrgetter(*(each.name for each in fields(MessageFacts)))


@dataclass(slots=True, kw_only=True, eq=False)
class Lease(MessageFacts):
    """Our claim on one received message. Times are monotonic seconds.

    Only the `LeaseBook` that holds it may change it.

    Attributes:
        held_since: When the first of its receives was sent. `max_lease` counts from here, also
            after redeliveries.
        received_at: When its latest receive was sent. SQS's 12 hours count from the receive
            itself, which is never earlier.
        expires_at: SQS hides the message at least until then, as far as we know.
        hidden_until: SQS hides the message at most until then, as far as is confirmed.
        is_exclusive: No one else can have received the message since its latest receive here.
            False after an extension that was confirmed when the lease had expired, because
            standard queues accept a stale handle, too.
        last_timeout: The visibility timeout that was confirmed last, in seconds.
        limit: For how many seconds an extension counts at most, see `StaleCalls`.
        extend_at: When the next extension is due.
        asked_at: When its goal became delete or release.
        end_at: When the next try of that delete or release is due.
        attempts: Failed tries since the last confirmed success.
        cause: Why the message is released, in a word or two.
        started_at: When its task began; None while the task waits.
        more_handles: `handles` if there are several, else empty. Most messages have only one.
        extensions: How many were confirmed since its latest receive.
        cap_is_near: Whether it was reported that the lease's end is near.
        is_isolated: Whether its calls contain no other lease, because a shared call was malformed.
        pending: The action of the call that it is in; None while it is in no call.
        is_deleted: Whether SQS has confirmed the delete of its message.
        has_place: Whether it has, or may take, its place in its group; see `GroupOrder`.
        turn: The number of its entry in a lane of the `Agenda`; 0 for none.
        watched_until: The time of its entry among the expiries; infinity for none.
        key: The message's identity, which is the same for all its deliveries.
    """

    terms: LeaseTerms
    held_since: float
    received_at: float = 0.0
    expires_at: float = 0.0
    hidden_until: float = 0.0
    last_timeout: int = 0
    limit: float = math.inf
    extend_at: float = 0.0
    goal: Goal = Goal.HOLD
    status: LeaseStatus = LeaseStatus.OWNED
    asked_at: float = 0.0
    end_at: float = 0.0
    release_delay: int = 0
    cause: str = ""
    started_at: float | None = None
    attempts: int = 0
    extensions: int = 0
    is_isolated: bool = False
    cap_is_near: bool = False
    is_exclusive: bool = True
    more_handles: tuple[str, ...] = field(default=(), repr=False)
    pending: Action | None = None
    is_deleted: bool = False
    has_place: bool = True
    turn: int = field(default=0, init=False, repr=False)
    watched_until: float = field(default=math.inf, init=False, repr=False)
    key: tuple[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Made once, because several dictionaries hold it.
        self.key = (self.queue_url, self.message_id)

    @property
    def handles(self) -> tuple[str, ...]:
        """Every receipt handle under which its owner may know it, in the order of their arrival."""
        return self.more_handles or ((self.receipt_handle,) if self.receipt_handle else ())

    @property
    def is_last_receive(self) -> bool:
        """Whether SQS moves the message to the dead-letter queue instead of delivering it again."""
        most = self.max_receive_count
        return most is not None and self.receive_count >= most

    @property
    def has_few_receives(self) -> bool:
        """Whether SQS delivers the message at most once more."""
        most = self.max_receive_count
        return most is not None and self.receive_count >= most - 1

    @property
    def is_in_order(self) -> bool:
        """Whether its message has a place in its group. Only FIFO queues number messages."""
        return self.terms.in_order and self.group is not None and self.sequence_number is not None

    def add_handle(self, receipt_handle: str) -> None:
        """Remember a handle under which the message was received."""
        if self.handles and receipt_handle not in self.handles:
            self.more_handles = (*self.handles, receipt_handle)

    def lasts_until(self, expires_at: float, counts_for: float) -> None:
        """Set the expiry, and plan the next extension before it.

        Args:
            counts_for: For how many seconds the last visibility timeout counts.
        """
        margin = self.terms.threshold
        if counts_for < self.last_timeout:
            # With the whole threshold, each next extension could be due at once.
            margin = min(margin, counts_for * DEFAULT_THRESHOLD_PART)
        self.expires_at = expires_at
        self.extend_at = expires_at - margin

    def set_goal(self, goal: Goal, now: float, *, due: float) -> None:
        """Set the goal to delete or release, with the first try at `due`."""
        self.goal = goal
        self.asked_at = now
        self.end_at = due
        self.attempts = 0


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
