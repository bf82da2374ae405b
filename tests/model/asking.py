"""The changes of visibility requested for each message, and which may still take effect."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.calls import Call, CallKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action

Key = tuple[str, str]


#: Answers after which a call may have taken effect at any earlier time.
MAY_HAVE_BEEN_DONE = (Outcome.DONE, Outcome.UNSURE)


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
