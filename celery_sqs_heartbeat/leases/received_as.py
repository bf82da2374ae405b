"""Classifies a received message, with regard to calls that may still end its lease.

A redelivery replaces the receipt handle of a message. A standard queue still accepts the old
handle, and then hides the message for as long as the old call requests. So if a call was unanswered
when the same worker received the message again, it may end the new lease early: an extension, if
the queue's visibility timeout was raised in the meantime, or a release, at once. A request can't be
withdrawn. But the worker knows the calls it has sent, so it knows how early they can end the lease:

- While an extension by an old handle is open, no receive and no extension counts for longer than
  the open one would hide the message, because SQS may perform that one later. The lease is then
  extended when a third of that time is left.
- While a release by an old handle is open, the worker does not run a redelivery, because its lease
  may end at any moment. It skips only one: a call that hangs for hours must not block the message.
  After that, and if the answer came while the receive was in flight, the lease is not certain.
- If the message is received again before its lease had expired, the release has taken effect.

A call whose answer was lost stays open, because SQS may perform it however late. That costs nothing
while the timeouts are the same. A call that SQS answered with HTTP 500 is not open: it was
performed before that answer, or not at all. A call that SQS refused was not performed. FIFO queues
refuse an old handle. They are treated the same way, because the case is rare.

Also here: which messages were received lately, and how fast they end.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import (
    Action,
    Goal,
    Lease,
    LeaseTerms,
    MessageFacts,
    facts_of,
)

_Key = tuple[str, str]
#: How many keys are remembered: several minutes of a fast worker's messages, in about 15 MB.
CAPACITY = 65_536
#: A poll takes less than half a second: as many messages as end in that will be wanted soon. The
#: mean is of four such spans, because on a busy machine several messages end at once.
PACE_SECONDS = 0.5
_SPANS = 4

Key = TypeVar("Key", bound=Hashable)
#: After any other answer, SQS has changed nothing and will change nothing.
_MAY_HAVE_BEEN_DONE = frozenset({Outcome.DONE, Outcome.UNSURE})

#: How old a receive may be on its arrival if its visibility timeout is unknown, in seconds: the
#: longest poll (20 s; SQS API reference, ReceiveMessage, WaitTimeSeconds) and the shortest timeout.
#: Even an answer at the end of that poll may be someone else's by then, and a standard queue would
#: still confirm its extension.
UNKNOWN_LASTS = 21


@dataclass(slots=True, repr=False)
class _StaleCall:
    """The calls for one message by one handle, with the same action and timeout.

    Attributes:
        earlier: Other calls for the message. A link, because most messages have no other calls.
        open: How many of the calls are unanswered, as far as we know.
        answered_at: When the last answer came after which it may have been done.
        held_until: When the lease was to expire when its release was planned; -inf for extensions.
        is_spared: Whether a redelivery was already skipped because of it.
    """

    handle: str
    timeout: int
    action: Action
    earlier: _StaleCall | None
    open: int = 0
    answered_at: float = -math.inf
    held_until: float = -math.inf
    is_spared: bool = False

    @property
    def is_release(self) -> bool:
        return self.held_until > -math.inf


class StaleCalls:
    """Remembers the calls for each message, until SQS has confirmed its delete."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._by_key: OrderedDict[_Key, _StaleCall] = OrderedDict()

    def note_sent(self, call: Call) -> None:
        """Note a call that is about to be made."""
        if call.kind is not CallKind.CHANGE_VISIBILITY:
            return
        for entry in call.entries:
            key = entry.lease.key
            stale = self._find(entry)
            if stale is None:
                earlier = self._by_key.get(key)
                stale = _StaleCall(entry.receipt_handle, entry.timeout, entry.action, earlier)
                self._by_key[key] = stale
            self._by_key.move_to_end(key)
            stale.open += 1
            if entry.action is Action.RELEASE:
                stale.held_until = entry.lease.expires_at
        while len(self._by_key) > self._capacity:
            self._by_key.popitem(last=False)

    def note_release(self, key: _Key, handle: str, held_until: float) -> None:
        """Note a release that an earlier keeper may have sent, and that no one will answer here.

        Args:
            held_until: When its lease was to expire.
        """
        self._by_key[key] = _StaleCall(
            handle, 0, Action.RELEASE, self._by_key.get(key), open=1, held_until=held_until
        )
        self._by_key.move_to_end(key)

    def note_answers(self, call: Call, outcomes: Sequence[Outcome], now: float) -> None:
        """Note SQS's answers. SQS may still perform a call without an answer."""
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            stale = self._find(entry)
            if stale is not None and outcome is not Outcome.UNKNOWN:
                stale.open = max(0, stale.open - 1)
                if outcome in _MAY_HAVE_BEEN_DONE:
                    stale.answered_at = now

    def forget(self, key: _Key) -> None:
        """Forget a message that can't be received again."""
        self._by_key.pop(key, None)

    def limit(self, key: _Key, handle: str | None, since: float = math.inf) -> float:
        """Return for how many seconds a lease by that handle counts at most.

        Args:
            handle: None if calls by its own handle count, too: after a late answer.
            since: When its receive, or the call that was answered late, was sent, if the limit is
                for that. An extension that was answered later may have been performed after it.
        """
        extensions = (each for each in self._others(key, handle, since) if not each.is_release)
        return min((each.timeout for each in extensions), default=math.inf)

    def releases(self, key: _Key, handle: str, since: float, arrived_at: float) -> bool:
        """Return whether a release may end the lease of a receive that has just arrived."""
        if key not in self._by_key:
            return False
        for each in self._of(key):
            if arrived_at < each.held_until:
                # Only the release can have made the message visible so early.
                self._remove(key, each)
        return any(each.is_release for each in self._others(key, handle, since))

    def spare(self, key: _Key, handle: str) -> bool:
        """Return whether to skip a receive because of an open release, once for each release."""
        found = [
            each
            for each in self._others(key, handle, math.inf)
            if each.is_release and not each.is_spared
        ]
        for each in found:
            each.is_spared = True
        return bool(found)

    def _find(self, entry: Entry) -> _StaleCall | None:
        for each in self._of(entry.lease.key):
            if (
                each.handle == entry.receipt_handle
                and each.timeout == entry.timeout
                and each.action is entry.action
            ):
                return each
        return None

    def _others(self, key: _Key, handle: str | None, since: float) -> Iterator[_StaleCall]:
        for each in self._of(key):
            if each.handle != handle and (each.open or each.answered_at >= since):
                yield each

    def _of(self, key: _Key) -> Iterator[_StaleCall]:
        call = self._by_key.get(key)
        while call is not None:
            yield call
            call = call.earlier

    def _remove(self, key: _Key, call: _StaleCall) -> None:
        for each in self._of(key):
            if each.earlier is call:
                each.earlier = call.earlier
                return
        if call.earlier is None:
            del self._by_key[key]
        else:
            self._by_key[key] = call.earlier


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


@dataclass(slots=True, kw_only=True)
class Receive(MessageFacts):
    """One receive of one message. Times are monotonic seconds.

    Attributes:
        hidden_for: The visibility timeout that the receive began with, in seconds; 0 if unknown.
        sent_at: When the receive was sent.
        arrived_at: When its answer arrived.
    """

    hidden_for: int
    sent_at: float
    arrived_at: float

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
        return Lease(*facts_of(self), terms=terms, held_since=self.sent_at)

    def describe(self, lease: Lease) -> None:
        """Copy the details of the message and its queue from this receive to a lease."""
        lease.max_receive_count = self.max_receive_count
        lease.sent_time, lease.first_received_time = self.sent_time, self.first_received_time
        lease.group, lease.sequence_number = self.group, self.sequence_number

    def is_older_than(self, lease: Lease) -> bool:
        """Return whether SQS answered it before the latest receive of the lease.

        It compares both values. Counts start again when a message returns from a dead-letter
        queue, and of two polls that wait at the same time, the later may receive it first.
        """
        return self.receive_count < lease.receive_count and self.sent_at < lease.received_at


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
    if lease is not None and lease.goal is not Goal.RELEASE:
        return ReceivedAs.FINISHED if lease.goal is Goal.DELETE else ReceivedAs.REDELIVERED
    if lease is not None and receive.is_older_than(lease):
        return ReceivedAs.LAPSED
    key, handle = receive.key, receive.receipt_handle
    is_released = stale_calls.releases(key, handle, receive.sent_at, receive.arrived_at)
    if is_released and stale_calls.spare(key, handle):
        return ReceivedAs.RELEASED
    return ReceivedAs.FINISHED if is_finished else ReceivedAs.NEW


class RecentKeys(Generic[Key]):
    """Remembers the newest keys, and forgets the oldest.

    For example, the messages whose task has succeeded: SQS may deliver a message again even
    after it confirmed the delete (standard queues deliver "at least once").
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[Key, None] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def add(self, key: Key) -> None:
        """Remember a key."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._capacity:
            self._keys.popitem(last=False)

    def discard(self, key: Key) -> None:
        """Forget a key, if it is remembered."""
        self._keys.pop(key, None)


class RecentEnds:
    """Tells how fast messages end. One thread at a time may count.

    Attributes:
        is_known: Whether any message has ended yet.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._ends: deque[float] = deque()

    def note(self, now: float) -> None:
        """Note that a message ends now."""
        self.is_known = True
        self._ends.append(now)
        # Forgets the old ones: a plain consumer that receives by itself never asks for the pace.
        self.count(now)

    def count(self, now: float) -> int:
        """Return how many end in half a second, by the mean of the last two."""
        while self._ends and self._ends[0] < now - _SPANS * PACE_SECONDS:
            self._ends.popleft()
        return (len(self._ends) + _SPANS // 2) // _SPANS
