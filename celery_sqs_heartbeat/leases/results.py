"""Applies the answers of SQS to leases, and knows which queues refuse calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import (
    REFUSALS,
    Answer,
    Call,
    CallKind,
    Entry,
    EventKind,
    Outcome,
)
from celery_sqs_heartbeat.leases.lease import SQS, Action, Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.policy import EXTENDABLE
from celery_sqs_heartbeat.leases.register import Register


class Results:
    """Turns one entry's outcome into the next state of its lease.

    A queue may refuse calls, for example because a permission is missing. Its refusals are counted,
    and it is probed until it accepts such calls again.

    Args:
        jitter: Returns a random number from 0 to 1, for the pauses between tries.
    """

    def __init__(self, register: Register, jitter: Callable[[], float]) -> None:
        self._register = register
        self._jitter = jitter
        self._refused: dict[tuple[str, CallKind], _Refused] = {}

    def is_refused(self, queue_url: str, kind: CallKind) -> bool:
        """Return whether the queue refused such a call, and refused the probe after it.

        A single refusal may be due to a policy that is just being replaced.
        """
        refused = self._refused.get((queue_url, kind))
        return refused is not None and refused.count > 1

    def note_answers(self, call: Call, outcomes: Sequence[Outcome], now: float) -> None:
        """Update what the queue refuses, after the answers to a call."""
        by_outcome = dict(zip(reversed(outcomes), reversed(call.entries), strict=True))
        if Outcome.DONE in by_outcome:
            self._granted(Answer(call, by_outcome[Outcome.DONE], Outcome.DONE), now)
        elif refusals := REFUSALS & by_outcome.keys():
            outcome = min(refusals, key=lambda each: each.value)
            self._note_refusal(Answer(call, by_outcome[outcome], outcome), now)
        elif call.kind is CallKind.CHANGE_VISIBILITY:
            # It failed, but was not refused: the next call may be a whole batch.
            self._register.agenda.grant(call.queue_url, call.kind)

    def hurry_deletes(self, now: float, queue_url: str | None = None) -> None:
        """Make deletes that wait for another try due now, of one queue or of all.

        All are due if the worker shuts down. Then refusals are forgotten, too, so that their
        pauses start again from the shortest.
        """
        if queue_url is None:
            self._refused |= {key: _Refused() for key in self._refused if key[1] is CallKind.DELETE}
        for lease in self._register:
            is_meant = queue_url is None or lease.queue_url == queue_url
            if is_meant and lease.goal is Goal.DELETE and lease.attempts and lease.pending is None:
                lease.end_at = min(lease.end_at, now)
                self._register.schedule(lease)

    def apply(self, entry: Entry, outcome: Outcome, call: Call, now: float) -> None:
        """Apply one answer. The book schedules the lease again afterwards."""
        lease, answer = entry.lease, Answer(call, entry, outcome)
        if outcome is Outcome.MALFORMED and len(call.entries) > 1:
            # One bad entry may have broken the whole call, so each entry gets its own call.
            lease.is_isolated = True
            return
        if entry.action is Action.EXTEND:
            self._extended(lease, answer, now)
        elif entry.action is Action.RELEASE:
            self._released(lease, answer, now)
        else:
            self._deleted(lease, answer, now)

    def apply_late(self, entry: Entry, outcome: Outcome, call: Call, now: float) -> None:
        """Apply the answer to a call that was given up. Only a success counts.

        As for any other call, the timeout counts from the planning of the call. If SQS may have
        performed a shorter extension after it, the lease counts for no longer than that one.
        """
        lease = entry.lease
        if outcome is not Outcome.DONE:
            return
        is_wanted = lease.goal is not Goal.RELEASE and lease.status in EXTENDABLE
        if entry.action is Action.EXTEND and is_wanted:
            limit = self._register.stale_calls.limit(lease.key, None, call.planned_at)
            entry = replace(entry, limit=min(entry.limit, limit))
            self._extended(lease, Answer(call, entry, outcome), now)
        elif entry.action is Action.DELETE:
            self._deleted(lease, Answer(call, entry, outcome), now)

    def _extended(self, lease: Lease, answer: Answer, now: float) -> None:
        outcome, report = answer.outcome, self._register.report
        if outcome is Outcome.DONE:
            report(EventKind.LEASE_EXTENDED, lease, now, answer)
            lease.is_exclusive = lease.is_exclusive and now < lease.expires_at
            counts_for = min(answer.entry.timeout, answer.entry.limit)
            expires_at = max(lease.expires_at, answer.call.planned_at + counts_for)
            lease.hidden_until = max(lease.hidden_until, now + answer.entry.timeout)
            lease.last_timeout = answer.entry.timeout
            lease.lasts_until(expires_at, counts_for)
            lease.extensions += 1
            if lease.status is LeaseStatus.EXPIRED and lease.goal is Goal.DELETE:
                self._hurry_delete(lease, now)
            lease.status = LeaseStatus.OWNED
            if lease.goal is Goal.HOLD:
                lease.attempts = 0
                if not lease.cap_is_near and policy.is_near_its_end(lease, now):
                    lease.cap_is_near = True
                    report(EventKind.LEASE_CAP_NEAR, lease, now)
        elif outcome in (Outcome.LOST, Outcome.MALFORMED):
            lease.status = LeaseStatus.LOST
            if lease.goal is Goal.HOLD:
                report(EventKind.LEASE_LOST, lease, now, answer)
            elif lease.goal is Goal.RELEASE:
                # A release by a handle that is no longer ours would disturb the new owner.
                report(EventKind.MESSAGE_LAPSING, lease, now, answer)
                self._register.forget(lease)
        elif outcome is Outcome.CAPPED:
            lease.status = LeaseStatus.CAPPED
            report(EventKind.LEASE_CAPPED, lease, now, answer)
        else:
            report(EventKind.EXTENSION_FAILED, lease, now, answer)
            self._register.note_expiry(lease, now)
            if outcome not in REFUSALS:
                lease.extend_at = now + self._pause(lease, outcome, now)

    def _hurry_delete(self, lease: Lease, now: float) -> None:
        """Try a delete again at once, because its pause has grown since the lease expired.

        Not if the queue refuses deletes: another try would be refused, too.
        """
        if (lease.queue_url, CallKind.DELETE) not in self._refused:
            lease.end_at = min(lease.end_at, now)

    def _released(self, lease: Lease, answer: Answer, now: float) -> None:
        outcome = answer.outcome
        if outcome in (Outcome.THROTTLED, Outcome.FAILED):
            lease.end_at = now + self._pause(lease, outcome, now)
            return
        if outcome in REFUSALS:
            # The queue is probed. This counts as a try: no extension may follow a release.
            lease.attempts += 1
            return
        # A release with an unknown outcome is not repeated. If the first one took effect, the
        # message may be someone else's by now, and the second would take it away.
        kind = EventKind.MESSAGE_RELEASED if outcome is Outcome.DONE else EventKind.MESSAGE_LAPSING
        self._register.report(kind, lease, now, answer)
        self._register.forget(lease)

    def _deleted(self, lease: Lease, answer: Answer, now: float) -> None:
        kind = _end_of_delete(lease, answer.outcome, now)
        cause = "delete refused" if kind is EventKind.DELETE_ABANDONED else ""
        self._register.report(kind, lease, now, answer, cause=cause)
        lease.is_deleted = kind is EventKind.MESSAGE_DELETED
        if kind is not EventKind.DELETE_FAILED:
            self._register.forget(lease)
            return
        pause = self._pause(lease, answer.outcome, now)
        if answer.outcome in REFUSALS:
            refused = self._refused.get((lease.queue_url, CallKind.DELETE))
            # Tries may have failed for other reasons, and other leases may have been refused.
            count = lease.attempts if refused is None else min(lease.attempts, refused.count)
            pause = policy.refused_delay(
                count, longest=policy.MAX_REFUSED_DELETE_SECONDS, jitter=self._jitter()
            )
        lease.end_at = now + pause

    def _pause(self, lease: Lease, outcome: Outcome, now: float) -> float:
        lease.attempts += 1
        return policy.retry_delay(
            lease.attempts,
            margin=lease.expires_at - now,
            throttled=outcome is Outcome.THROTTLED,
            jitter=self._jitter(),
        )

    def _note_refusal(self, answer: Answer, now: float) -> None:
        kind = answer.call.kind
        key = (answer.call.queue_url, kind)
        refused = self._refused.get(key)
        if refused is None:
            self._register.report(EventKind.PERMISSION_DENIED, answer.entry.lease, now, answer)
            refused = self._refused[key] = _Refused()
        # A call that was planned before the last refusal arrived does not count again.
        if answer.call.planned_at > refused.last_at:
            refused.count, refused.last_at = refused.count + 1, now
        if kind is CallKind.CHANGE_VISIBILITY:
            pause = policy.refused_delay(
                refused.count, longest=policy.MAX_PROBE_SECONDS, jitter=self._jitter()
            )
            self._register.agenda.refuse(*key, now + pause)
            if self.is_refused(*key):
                self._stop_leasing(answer.call.queue_url, now)

    def _granted(self, answer: Answer, now: float) -> None:
        queue_url, kind = answer.call.queue_url, answer.call.kind
        if self._refused.pop((queue_url, kind), None) is None:
            return
        self._register.report(EventKind.PERMISSION_GRANTED, answer.entry.lease, now, answer)
        if kind is CallKind.CHANGE_VISIBILITY:
            self._register.agenda.grant(queue_url, kind)
            self._lease_again(queue_url, now)
        else:
            self.hurry_deletes(now, queue_url)

    def _lease_again(self, queue_url: str, now: float) -> None:
        for lease in self._register:
            if lease.queue_url == queue_url and lease.status is LeaseStatus.REFUSED:
                lease.status = LeaseStatus.OWNED
                self._register.note_expiry(lease, now)
                self._register.schedule(lease)

    def _stop_leasing(self, queue_url: str, now: float) -> None:
        """Let leases lapse whose goal is release, and show that the others are not extended."""
        for lease in [each for each in self._register if each.queue_url == queue_url]:
            if lease.goal is Goal.RELEASE:
                self._register.lapse(lease, now)
            elif lease.status is LeaseStatus.OWNED or (
                lease.goal is Goal.DELETE and lease.status is LeaseStatus.EXPIRED
            ):
                lease.status = LeaseStatus.REFUSED
                self._register.schedule(lease)


@dataclass(slots=True)
class _Refused:
    """How often a queue refused an action in a row, each time after the refusal before it."""

    count: int = 0
    last_at: float = -math.inf


def _end_of_delete(lease: Lease, outcome: Outcome, now: float) -> EventKind:
    """Return the result of a delete: confirmed, given up for good, or to be repeated."""
    if outcome is Outcome.DONE:
        return EventKind.MESSAGE_DELETED
    if outcome in (Outcome.LOST, Outcome.MALFORMED, Outcome.CAPPED):
        # A FIFO queue refuses an expired handle: the message is still in the queue. SQS confirms
        # the delete of a deleted message, so LOST does not mean that an earlier try succeeded.
        return EventKind.DELETE_ABANDONED
    # After 12 hours SQS has made the message visible again, unless its queue is gone.
    is_over = outcome in REFUSALS and now >= lease.received_at + SQS.longest_hold
    return EventKind.DELETE_ABANDONED if is_over else EventKind.DELETE_FAILED
