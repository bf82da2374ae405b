"""What each answer of SQS means for a lease."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.actions import EXTENDABLE
from celery_sqs_heartbeat.leases.calls import REFUSALS, Answer, Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS, Action, Lease, Standing, State


class Ledger(Protocol):
    """What a settler has changed in the book that it works for."""

    def leases(self) -> Iterable[Lease]:
        """Return the leases of the book."""

    def schedule(self, lease: Lease) -> None:
        """Place the lease by its next action."""

    def forget(self, lease: Lease) -> None:
        """Remove every trace of a lease."""

    def lapse(self, lease: Lease, now: float) -> None:
        """Report that a lease becomes visible by itself, and forget it."""

    def watch_expiry(self, lease: Lease) -> None:
        """Report when the lease expires."""

    def note_expiry(self, lease: Lease, now: float) -> None:
        """Report, once, that a lease has expired."""

    def refuse(self, queue_url: str, kind: CallKind, probe_at: float) -> None:
        """Probe a queue that refused such a call."""

    def grant(self, queue_url: str, kind: CallKind) -> None:
        """Make such calls of a queue as usual again."""

    def hurry_deletes(self, now: float, queue_url: str | None = None) -> None:
        """Make deletes that wait for another try due."""

    def report(
        self,
        kind: EventKind,
        lease: Lease,
        now: float,
        answer: Answer | None = None,
        cause: str = "",
    ) -> None:
        """Note an event."""


class Settler:
    """Turns one entry's outcome into the next state of its lease."""

    def __init__(self, book: Ledger, jitter: Callable[[], float]) -> None:
        self._book = book
        self._jitter = jitter
        self._refusals: dict[tuple[str, CallKind], _Refusals] = {}

    def is_refused(self, queue_url: str, kind: CallKind) -> bool:
        """Return whether the action was refused on that queue, and again when it was probed.

        One refusal may be that of a policy which is being replaced at the moment.
        """
        refusals = self._refusals.get((queue_url, kind))
        return refusals is not None and refusals.count > 1

    def forget_refused_deletes(self) -> None:
        """Let the pauses between refused deletes begin anew, at their shortest."""
        for key in self._refusals:
            if key[1] is CallKind.DELETE:
                self._refusals[key] = _Refusals()

    def note_answers(self, call: Call, outcomes: Sequence[Outcome], now: float) -> None:
        """Take in what the answers to a call say of its queue as a whole."""
        by_outcome = dict(zip(reversed(outcomes), reversed(call.entries), strict=True))
        if Outcome.DONE in by_outcome:
            self._granted(Answer(call, by_outcome[Outcome.DONE], Outcome.DONE), now)
        elif refusals := REFUSALS & by_outcome.keys():
            outcome = min(refusals, key=lambda each: each.value)
            self._refused(Answer(call, by_outcome[outcome], outcome), now)
        elif call.kind is CallKind.CHANGE_VISIBILITY:
            # Not refused, though not done: a whole batch may go next.
            self._book.grant(call.queue_url, call.kind)

    def settle(self, entry: Entry, outcome: Outcome, call: Call, now: float) -> None:
        """Take in one answer. The book schedules the lease afresh afterwards."""
        lease, answer = entry.lease, Answer(call, entry, outcome)
        if outcome is Outcome.MALFORMED and len(call.entries) > 1:
            # One bad entry may have spoilt the whole call: each gets one of its own.
            lease.alone = True
            return
        if entry.action is Action.EXTEND:
            self._extended(lease, answer, now)
        elif entry.action is Action.RELEASE:
            self._released(lease, answer, now)
        else:
            self._deleted(lease, answer, now)

    def settle_late(self, entry: Entry, outcome: Outcome, call: Call, now: float) -> None:
        """Take in the answer to a call that was given up: only a success says anything.

        It counts from the planning of its call as any other does.
        """
        lease, answer = entry.lease, Answer(call, entry, outcome)
        if outcome is not Outcome.DONE:
            return
        is_wanted = lease.state is not State.BACK and lease.standing in EXTENDABLE
        if entry.action is Action.EXTEND and is_wanted:
            self._extended(lease, answer, now)
        elif entry.action is Action.DELETE:
            self._deleted(lease, answer, now)

    def _extended(self, lease: Lease, answer: Answer, now: float) -> None:
        outcome, report = answer.outcome, self._book.report
        if outcome is Outcome.DONE:
            report(EventKind.LEASE_EXTENDED, lease, now, answer)
            lease.certain = lease.certain and now < lease.expires_at
            counts_for = min(answer.entry.timeout, answer.entry.limit)
            expires_at = max(lease.expires_at, answer.call.planned_at + counts_for)
            lease.hidden_until = max(lease.hidden_until, now + answer.entry.timeout)
            lease.last_timeout = answer.entry.timeout
            lease.lasts_until(expires_at, counts_for)
            lease.extensions += 1
            if lease.standing is Standing.EXPIRED and lease.state is State.DONE:
                self._hurry_delete(lease, now)
            if lease.standing is Standing.EXPIRED:
                self._book.watch_expiry(lease)
            lease.standing = Standing.OURS
            if lease.state is State.HELD:
                lease.attempts = 0
                if not lease.cap_is_near and policy.is_near_its_end(lease, now):
                    lease.cap_is_near = True
                    report(EventKind.LEASE_CAP_NEAR, lease, now)
        elif outcome in (Outcome.LOST, Outcome.MALFORMED):
            lease.standing = Standing.LOST
            if lease.state is State.HELD:
                report(EventKind.LEASE_LOST, lease, now, answer)
            elif lease.state is State.BACK:
                # A release by a handle that is not ours would disturb the new owner.
                report(EventKind.MESSAGE_LAPSING, lease, now, answer)
                self._book.forget(lease)
        elif outcome is Outcome.CAPPED:
            lease.standing = Standing.CAPPED
            report(EventKind.LEASE_CAPPED, lease, now, answer)
        else:
            report(EventKind.EXTENSION_FAILED, lease, now, answer)
            self._book.note_expiry(lease, now)
            if outcome not in REFUSALS:
                lease.extend_at = now + self._pause(lease, outcome, now)

    def _hurry_delete(self, lease: Lease, now: float) -> None:
        """Try a delete again at once: its pause has grown since the lease expired.

        Not where deletes are refused: it is no better off than the others.
        """
        if (lease.queue_url, CallKind.DELETE) not in self._refusals:
            lease.end_at = min(lease.end_at, now)

    def _released(self, lease: Lease, answer: Answer, now: float) -> None:
        outcome = answer.outcome
        if outcome in (Outcome.THROTTLED, Outcome.FAILED):
            lease.end_at = now + self._pause(lease, outcome, now)
            return
        if outcome in REFUSALS:
            # The queue is probed. It counts as a try: no extension may follow it.
            lease.attempts += 1
            return
        # Not repeated when its fate is unknown: if the first one took effect, the
        # message may be someone else's by now and the second would take it away.
        kind = EventKind.MESSAGE_RELEASED if outcome is Outcome.DONE else EventKind.MESSAGE_LAPSING
        self._book.report(kind, lease, now, answer)
        self._book.forget(lease)

    def _deleted(self, lease: Lease, answer: Answer, now: float) -> None:
        kind = _end_of_delete(lease, answer.outcome, now)
        cause = "delete refused" if kind is EventKind.DELETE_ABANDONED else ""
        self._book.report(kind, lease, now, answer, cause)
        if kind is not EventKind.DELETE_FAILED:
            self._book.forget(lease)
            return
        pause = self._pause(lease, answer.outcome, now)
        if answer.outcome in REFUSALS:
            refusals = self._refusals.get((lease.queue_url, CallKind.DELETE))
            # Tries may have failed for other reasons, and refusals been of other leases.
            count = lease.attempts if refusals is None else min(lease.attempts, refusals.count)
            pause = policy.refused_delete_delay(count, jitter=self._jitter())
        lease.end_at = now + pause

    def _pause(self, lease: Lease, outcome: Outcome, now: float) -> float:
        lease.attempts += 1
        return policy.retry_delay(
            lease.attempts,
            margin=lease.expires_at - now,
            throttled=outcome is Outcome.THROTTLED,
            jitter=self._jitter(),
        )

    def _refused(self, answer: Answer, now: float) -> None:
        kind = answer.call.kind
        key = (answer.call.queue_url, kind)
        refusals = self._refusals.get(key)
        if refusals is None:
            self._book.report(EventKind.PERMISSION_DENIED, answer.entry.lease, now, answer)
            refusals = self._refusals[key] = _Refusals()
        # One that was sent before the answer to the last was in is no other refusal.
        if answer.call.planned_at > refusals.last_at:
            refusals.count, refusals.last_at = refusals.count + 1, now
        if kind is CallKind.CHANGE_VISIBILITY:
            pause = policy.probe_delay(refusals.count, jitter=self._jitter())
            self._book.refuse(*key, now + pause)
            if self.is_refused(*key):
                self._stop_leasing(answer.call.queue_url, now)

    def _granted(self, answer: Answer, now: float) -> None:
        queue_url, kind = answer.call.queue_url, answer.call.kind
        if self._refusals.pop((queue_url, kind), None) is None:
            return
        self._book.report(EventKind.PERMISSION_GRANTED, answer.entry.lease, now, answer)
        if kind is CallKind.CHANGE_VISIBILITY:
            self._book.grant(queue_url, kind)
            self._lease_again(queue_url, now)
        else:
            self._book.hurry_deletes(now, queue_url)

    def _lease_again(self, queue_url: str, now: float) -> None:
        for lease in self._book.leases():
            if lease.queue_url == queue_url and lease.standing is Standing.UNLEASED:
                lease.standing = Standing.OURS
                self._book.note_expiry(lease, now)
                self._book.schedule(lease)

    def _stop_leasing(self, queue_url: str, now: float) -> None:
        """Let what is to be released lapse, and show that the others are not extended."""
        for lease in [each for each in self._book.leases() if each.queue_url == queue_url]:
            if lease.state is State.BACK:
                self._book.lapse(lease, now)
            elif lease.standing is Standing.OURS or (
                lease.state is State.DONE and lease.standing is Standing.EXPIRED
            ):
                lease.standing = Standing.UNLEASED
                self._book.schedule(lease)


@dataclass(slots=True)
class _Refusals:
    """How often a queue refused an action in a row, each probe after the refusal before it."""

    count: int = 0
    last_at: float = -math.inf


def _end_of_delete(lease: Lease, outcome: Outcome, now: float) -> EventKind:
    """Return what became of a delete: confirmed, given up for good, or to be repeated."""
    if outcome is Outcome.DONE:
        return EventKind.MESSAGE_DELETED
    if outcome in (Outcome.LOST, Outcome.MALFORMED, Outcome.CAPPED):
        # A FIFO queue takes no handle that has expired: the message is still there. SQS confirms
        # the delete of what is deleted, so LOST does not say that an earlier try succeeded.
        return EventKind.DELETE_ABANDONED
    # After 12 hours SQS has shown the message again, unless its queue is gone.
    is_over = outcome in REFUSALS and now >= lease.received_at + MAX_VISIBILITY_SECONDS
    return EventKind.DELETE_ABANDONED if is_over else EventKind.DELETE_FAILED
