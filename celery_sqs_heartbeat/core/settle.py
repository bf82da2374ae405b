"""What each answer of SQS means for a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.core import policy
from celery_sqs_heartbeat.core.calls import Action, Answer, Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.core.events import EventKind
from celery_sqs_heartbeat.core.lease import Lease, Standing, State

if TYPE_CHECKING:
    from celery_sqs_heartbeat.core.book import LeaseBook

#: How long a queue that refused extensions for want of a permission goes without
#: leases before a new message tries again, in seconds. Changes of IAM policies
#: take up to some minutes to reach SQS.
DENIED_SECONDS = 60.0
#: Pause before a delete that was refused for want of a permission is tried again.
DENIED_DELETE_RETRY_SECONDS = 30.0


class Settler:
    """Turns one entry's outcome into the next state of its lease."""

    def __init__(self, book: LeaseBook, jitter: Callable[[], float]) -> None:
        self._book = book
        self._jitter = jitter
        self._denied_until: dict[tuple[str, CallKind], float] = {}

    def is_denied(self, queue_url: str, kind: CallKind, now: float) -> bool:
        """Return whether the action was refused on that queue a short while ago."""
        return self._denied_until.get((queue_url, kind), now) > now

    def settle(self, entry: Entry, outcome: Outcome, call: Call, now: float) -> None:
        """Take in one answer. The book schedules the lease afresh afterwards."""
        lease, answer = entry.lease, Answer(call, entry, outcome)
        if outcome is Outcome.DENIED:
            self._denied(lease, answer, now)
            if not self._book.holds(lease):
                return
        elif outcome is Outcome.DONE and (lease.queue_url, call.kind) in self._denied_until:
            del self._denied_until[lease.queue_url, call.kind]
            if call.kind is CallKind.CHANGE_VISIBILITY:
                self._lease_again(lease.queue_url, now)
            self._book.report(EventKind.PERMISSION_GRANTED, lease, now, answer)
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

    def _extended(self, lease: Lease, answer: Answer, now: float) -> None:
        outcome, report = answer.outcome, self._book.report
        if outcome is Outcome.DONE:
            report(EventKind.LEASE_EXTENDED, lease, now, answer)
            lease.certain = lease.certain and now < lease.expires_at
            lease.expires_at = max(lease.expires_at, answer.call.planned_at + answer.entry.timeout)
            lease.hidden_until = max(lease.hidden_until, now + answer.entry.timeout)
            lease.last_timeout = answer.entry.timeout
            lease.extend_at = lease.expires_at - lease.terms.threshold
            lease.extensions += 1
            if lease.standing is Standing.EXPIRED and lease.state is State.DONE:
                self._hurry_delete(lease, now)
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
        elif outcome is not Outcome.DENIED:
            report(EventKind.EXTENSION_FAILED, lease, now, answer)
            self._book.note_expiry(lease, now)
            lease.extend_at = now + self._pause(lease, outcome, now)

    def _hurry_delete(self, lease: Lease, now: float) -> None:
        """Try a delete again at once: its pause has grown since the lease expired."""
        if not self.is_denied(lease.queue_url, CallKind.DELETE, now):
            lease.end_at = min(lease.end_at, now)

    def _released(self, lease: Lease, answer: Answer, now: float) -> None:
        outcome = answer.outcome
        if outcome in (Outcome.THROTTLED, Outcome.FAILED):
            lease.end_at = now + self._pause(lease, outcome, now)
            return
        # Not repeated when its fate is unknown: if the first one took effect, the
        # message may be someone else's by now and the second would take it away.
        kind = EventKind.MESSAGE_RELEASED if outcome is Outcome.DONE else EventKind.MESSAGE_LAPSING
        self._book.report(kind, lease, now, answer)
        self._book.forget(lease)

    def _deleted(self, lease: Lease, answer: Answer, now: float) -> None:
        outcome = answer.outcome
        if outcome in (Outcome.DONE, Outcome.LOST):
            kind = EventKind.MESSAGE_DELETED
        elif outcome in (Outcome.MALFORMED, Outcome.CAPPED):
            kind = EventKind.DELETE_ABANDONED
        else:
            self._book.report(EventKind.DELETE_FAILED, lease, now, answer)
            pause = self._pause(lease, outcome, now)
            lease.end_at = now + max(
                pause, DENIED_DELETE_RETRY_SECONDS if outcome is Outcome.DENIED else 0.0
            )
            return
        self._book.report(kind, lease, now, answer)
        self._book.forget(lease)

    def _pause(self, lease: Lease, outcome: Outcome, now: float) -> float:
        lease.attempts += 1
        return policy.retry_delay(
            lease.attempts,
            margin=lease.expires_at - now,
            throttled=outcome is Outcome.THROTTLED,
            jitter=self._jitter(),
        )

    def _denied(self, lease: Lease, answer: Answer, now: float) -> None:
        kind = answer.call.kind
        key = (lease.queue_url, kind)
        if key not in self._denied_until:
            self._book.report(EventKind.PERMISSION_DENIED, lease, now, answer)
        if self.is_denied(*key, now):
            return
        self._denied_until[key] = now + DENIED_SECONDS
        if kind is CallKind.CHANGE_VISIBILITY:
            self._stop_leasing(lease.queue_url, now)

    def _lease_again(self, queue_url: str, now: float) -> None:
        for lease in self._book.leases():
            if (
                lease.queue_url == queue_url
                and lease.standing is Standing.UNLEASED
                and now < lease.expires_at
            ):
                lease.standing = Standing.OURS
                self._book.schedule(lease)

    def _stop_leasing(self, queue_url: str, now: float) -> None:
        for lease in [each for each in self._book.leases() if each.queue_url == queue_url]:
            if lease.state is State.BACK:
                self._book.report(EventKind.MESSAGE_LAPSING, lease, now)
                self._book.forget(lease)
            elif lease.standing in (Standing.OURS, Standing.EXPIRED):
                lease.standing = Standing.UNLEASED
                self._book.schedule(lease)
