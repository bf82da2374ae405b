"""The truth about each message, in plain values. The book is compared with it.

It is written from the documents, not from the book. It leaves open what the book may choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.events import Call, CallKind, Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action, LeaseTerms

Key = tuple[str, str]

#: The longest pause between tries, and the one after a refused delete, in seconds.
LONGEST_PAUSE = 5.0
REFUSED_DELETE_PAUSE = 30.0
GATHER = 0.05
TWELVE_HOURS = 43_200.0
#: How long the keeper waits for a call, by the smallest threshold in it, both in seconds.
PATIENCE = {0.3: 0.6, 10: 10 / 3, 29.9: 29.9 / 3, 14_400: 20.0}
REFUSED = (Outcome.DENIED, Outcome.NO_QUEUE)
RETRIED = (Outcome.THROTTLED, Outcome.FAILED, Outcome.UNSURE, Outcome.UNKNOWN)
#: Answers after which a call may have taken effect at any earlier time.
MAY_HAVE_BEEN_DONE = (Outcome.DONE, Outcome.UNSURE)
#: The events that end a lease for a reader.
ENDS = frozenset(
    {
        EventKind.MESSAGE_DELETED,
        EventKind.MESSAGE_RELEASED,
        EventKind.MESSAGE_LAPSING,
        EventKind.DELETE_ABANDONED,
    }
)


@dataclass(eq=False)
class Asked:
    """One change of visibility in one call.

    Attributes:
        held_until: When the lease would have expired without this change.
        limit: The longest time for which it counts when its answer arrives.
        answered_at: Infinity while it may still take effect; -infinity once it was refused.
        is_spared: A redelivery was not run because of it.
    """

    key: Key
    handle: str
    timeout: int
    is_release: bool
    call: Call
    held_until: float
    limit: float
    answered_at: float = math.inf
    is_spared: bool = False


@dataclass
class Asking:
    """Every change of visibility of messages that may be received again."""

    asked: list[Asked] = field(default_factory=list)

    def send(self, call: Call) -> None:
        if call.kind is CallKind.CHANGE_VISIBILITY:
            self.asked += [
                Asked(
                    key=entry.lease.key,
                    handle=entry.receipt_handle,
                    timeout=entry.timeout,
                    is_release=entry.action is Action.RELEASE,
                    call=call,
                    held_until=entry.lease.expires_at,
                    limit=self.limit(entry.lease.key, entry.receipt_handle),
                )
                for entry in call.entries
            ]

    def counts_for(self, call: Call, handle: str, timeout: int) -> float:
        """Return for how long a confirmed extension counts."""
        (limit,) = [each.limit for each in self.asked if (each.call, each.handle) == (call, handle)]
        return min(timeout, limit)

    def answer(self, call: Call, given: list[Outcome], now: float) -> None:
        """Note what is certain about a call. An answered call does not take effect again."""
        for entry, outcome in zip(call.entries, given, strict=True):
            for each in self.asked:
                if (each.call, each.handle) == (call, entry.receipt_handle) and (
                    outcome is not Outcome.UNKNOWN
                ):
                    # A refused call did not take effect before that, either.
                    each.answered_at = now if outcome in MAY_HAVE_BEEN_DONE else -math.inf

    def forget(self, key: Key) -> None:
        self.asked = [each for each in self.asked if each.key != key]

    def limit(self, key: Key, handle: str, since: float = math.inf) -> float:
        others = self._others(key, handle, since)
        return min((each.timeout for each in others if not each.is_release), default=math.inf)

    def releases(self, key: Key, handle: str, since: float, now: float) -> list[Asked]:
        """Return the releases that may have taken effect after the message was received again."""
        self.asked = [
            each
            for each in self.asked
            if not (each.key == key and each.is_release and now < each.held_until)
        ]
        return [each for each in self._others(key, handle, since) if each.is_release]

    def _others(self, key: Key, handle: str, since: float) -> Iterator[Asked]:
        for each in self.asked:
            if each.key == key and each.handle != handle and each.answered_at >= since:
                yield each


@dataclass(eq=False)
class Held:
    """One message that the worker holds, deletes or releases.

    Attributes:
        extend_due: The latest time at which its next extension is due.
        end_due: The same for its delete or release.
    """

    key: Key
    terms: LeaseTerms
    held_since: float
    received_at: float = 0.0
    expires_at: float = 0.0
    hidden_at_most: float = 0.0
    last_timeout: int = 0
    handles: list[str] = field(default_factory=list)
    wanted: str = "hold"
    lost: bool = False
    capped: bool = False
    is_exclusive: bool = True
    troubled: bool = False
    delay: float = 0.0
    extend_due: float = 0.0
    end_due: float = 0.0
    deletes_sent: set[str] = field(default_factory=set)

    @property
    def handle(self) -> str:
        return self.handles[-1]

    @property
    def limit(self) -> float:
        """The latest time until which it may be extended."""
        own = self.held_since + min(self.terms.max_lease, TWELVE_HOURS)
        return min(own, self.received_at + TWELVE_HOURS)

    def take(
        self,
        handle: str,
        *,
        hidden_for: int,
        sent_at: float,
        now: float,
        expires_at: float,
        counts_for: float,
        is_exclusive: bool,
    ) -> None:
        """Apply a receive. If its timeout is unknown, the book may assume anything."""
        if handle not in self.handles:
            self.handles.append(handle)
        self.received_at = sent_at
        self.lost = self.capped = False
        self.is_exclusive = is_exclusive
        self.last_timeout = hidden_for
        if hidden_for:
            assert expires_at == sent_at + min(hidden_for, counts_for)
        else:
            assert now <= expires_at <= now + self.terms.threshold
        self._hidden_until(expires_at, counts_for)
        self.hidden_at_most = max(expires_at, now + hidden_for)
        if self.wanted == "delete":
            self.end_due = now

    def want_deleted(self, now: float) -> None:
        self.wanted = "delete"
        self.end_due = now + GATHER

    def want_released(self, delay: float, now: float) -> None:
        self.wanted, self.delay = "release", delay
        self.end_due = now

    def answered(
        self,
        action: Action,
        outcome: Outcome,
        call: Call,
        timeout: int,
        now: float,
        counts_for: float,
    ) -> str:
        """Apply an answer. Return whether the book "keeps", "ends" or "may end" the lease."""
        alone = len(call.entries) == 1
        if outcome is Outcome.MALFORMED and not alone:
            return "keeps"
        if action is Action.EXTEND:
            return self._extension_answered(outcome, call.planned_at, timeout, now, counts_for)
        if action is Action.RELEASE and outcome in REFUSED:
            return "may end"
        if action is Action.RELEASE:
            self.end_due = now + LONGEST_PAUSE
            return "keeps" if outcome in (Outcome.THROTTLED, Outcome.FAILED) else "ends"
        if outcome in (Outcome.DONE, Outcome.LOST, Outcome.MALFORMED, Outcome.CAPPED):
            return "ends"
        refused = outcome in REFUSED
        self.end_due = now + (REFUSED_DELETE_PAUSE if refused else LONGEST_PAUSE)
        return "may end" if refused and now >= self.received_at + TWELVE_HOURS else "keeps"

    def answered_late(
        self, action: Action, call: Call, timeout: int, now: float, counts_for: float
    ) -> str:
        """Apply the late success of a call that was given up."""
        if action is Action.DELETE:
            return "ends"
        if action is Action.EXTEND and self.wanted != "release" and not (self.lost or self.capped):
            self._extension_answered(Outcome.DONE, call.planned_at, timeout, now, counts_for)
        return "keeps"

    def _extension_answered(
        self, outcome: Outcome, planned_at: float, timeout: int, now: float, counts_for: float
    ) -> str:
        if outcome is Outcome.DONE:
            self.is_exclusive = self.is_exclusive and now < self.expires_at
            self.last_timeout = timeout
            self._hidden_until(max(self.expires_at, planned_at + counts_for), counts_for)
            self.hidden_at_most = max(self.hidden_at_most, now + timeout)
        elif outcome in (Outcome.LOST, Outcome.MALFORMED):
            self.lost = True
            # A release by a lost handle would disturb the message's new owner. And only a
            # delete that was sent can have removed the message.
            if self.wanted == "release":
                return "ends"
            if self.wanted == "delete" and self.handle in self.deletes_sent:
                return "may end"
        elif outcome is Outcome.CAPPED:
            self.capped = True
        elif outcome in RETRIED:
            self.extend_due = now + LONGEST_PAUSE
            self.troubled = self.wanted == "delete"
        return "keeps"

    def _hidden_until(self, expires_at: float, counts_for: float) -> None:
        self.expires_at = expires_at
        margin = self.terms.threshold
        if counts_for < self.last_timeout:
            # A call by an old handle may end it sooner.
            margin = min(margin, counts_for / 3)
        self.extend_due = expires_at - margin


class World:
    """Every message, and every call that is not answered yet."""

    def __init__(self) -> None:
        self.held: dict[Key, Held] = {}
        self.asking = Asking()
        self.finished: set[Key] = set()
        self.outstanding: list[tuple[Call, tuple[Held, ...]]] = []
        self.given_up: list[tuple[Call, tuple[Held, ...]]] = []
        self.unsent: set[int] = set()
        self.released: set[str] = set()
        #: Queues that ever refused a change of visibility, and those that refused the last one.
        self.denied: set[str] = set()
        self.refusing: set[str] = set()

    def forget(self, key: Key) -> None:
        held = self.held.pop(key, None)
        if held is not None and held.wanted == "delete":
            self.asking.forget(key)

    def owner(self, handle: str) -> Held | None:
        return next((each for each in self.held.values() if handle in each.handles), None)

    def is_under_way(self, held: Held, action: Action) -> bool:
        pairs = (zip(call.entries, leases, strict=True) for call, leases in self.outstanding)
        return any(each is held and e.action is action for pair in pairs for e, each in pair)

    def in_flight(self, queue_url: str, kind: CallKind) -> int:
        return [(call.queue_url, call.kind) for call, _ in self.outstanding].count(
            (queue_url, kind)
        )

    def waits_until(self, call: Call) -> float:
        """Return until when the keeper waits for the answer to a call."""
        threshold = min(entry.lease.terms.threshold for entry in call.entries)
        return call.planned_at + PATIENCE[threshold]

    def in_a_call(self, held: Held) -> bool:
        return any(held in leases for _, leases in self.outstanding)


class Reported:
    """The leases according to the events alone."""

    def __init__(self) -> None:
        self._held: dict[Key, str] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Follow the events. Each lease begins once, and ends once, under its own handle."""
        for event in events:
            key = (event.queue_url, event.message_id)
            if event.kind is EventKind.MESSAGE_RECEIVED:
                is_new = event.cause == "new"
                assert not (is_new and key in self._held), "the earlier end was not reported"
                self._held[key] = event.receipt_handle
            elif event.kind in ENDS:
                assert self._held.pop(key, None) == event.receipt_handle, "an end without a lease"

    def drop(self, key: Key) -> None:
        """Note that the owner of a message lets it expire, which is not reported."""
        self._held.pop(key, None)

    def check(self, held: Iterable[Key]) -> None:
        """Check that exactly these leases are held."""
        assert self._held.keys() == set(held)
