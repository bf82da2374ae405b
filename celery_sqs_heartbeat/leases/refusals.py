"""Queues that refuse calls, for example because a permission is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.calls import REFUSALS, Answer, Call, CallKind, Outcome
from celery_sqs_heartbeat.leases.event_buffer import EventBuffer
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.expiry_handler import ExpiryHandler
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus
from celery_sqs_heartbeat.leases.register import Register


class Refusals:
    """Counts each queue's refusals, and has it probed until it accepts such calls again."""

    def __init__(
        self,
        *,
        register: Register,
        agenda: Agenda,
        expiry_handler: ExpiryHandler,
        event_buffer: EventBuffer,
        jitter: Callable[[], float],
    ) -> None:
        self._register = register
        self._agenda = agenda
        self._expiry_handler = expiry_handler
        self._event_buffer = event_buffer
        self._jitter = jitter
        self._refused: dict[tuple[str, CallKind], _Refused] = {}

    def is_refused(self, queue_url: str, kind: CallKind) -> bool:
        """Return whether the queue refused such a call, and refused the probe after it.

        A single refusal may be due to a policy that is just being replaced.
        """
        refused = self._refused.get((queue_url, kind))
        return refused is not None and refused.count > 1

    def count(self, queue_url: str, kind: CallKind) -> int | None:
        """Return how often the queue refused such calls in a row; None if it refuses none."""
        refused = self._refused.get((queue_url, kind))
        return None if refused is None else refused.count

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
            self._agenda.grant(call.queue_url, call.kind)

    def hurry_deletes(self, now: float, queue_url: str | None = None) -> None:
        """Make deletes that wait for another try due now, of one queue or of all.

        All are due if the worker shuts down. Then refusals are forgotten, too, so that their
        pauses start again from the shortest.
        """
        if queue_url is None:
            for key in self._refused:
                if key[1] is CallKind.DELETE:
                    self._refused[key] = _Refused()
        for lease in self._register:
            is_meant = queue_url is None or lease.queue_url == queue_url
            if is_meant and lease.goal is Goal.DELETE and lease.attempts and lease.pending is None:
                lease.end_at = min(lease.end_at, now)
                self._register.schedule(lease)

    def _note_refusal(self, answer: Answer, now: float) -> None:
        kind = answer.call.kind
        key = (answer.call.queue_url, kind)
        refused = self._refused.get(key)
        if refused is None:
            self._event_buffer.report(EventKind.PERMISSION_DENIED, answer.entry.lease, now, answer)
            refused = self._refused[key] = _Refused()
        # A call that was planned before the last refusal arrived does not count again.
        if answer.call.planned_at > refused.last_at:
            refused.count, refused.last_at = refused.count + 1, now
        if kind is CallKind.CHANGE_VISIBILITY:
            pause = policy.probe_delay(refused.count, jitter=self._jitter())
            self._agenda.refuse(*key, now + pause)
            if self.is_refused(*key):
                self._stop_leasing(answer.call.queue_url, now)

    def _granted(self, answer: Answer, now: float) -> None:
        queue_url, kind = answer.call.queue_url, answer.call.kind
        if self._refused.pop((queue_url, kind), None) is None:
            return
        self._event_buffer.report(EventKind.PERMISSION_GRANTED, answer.entry.lease, now, answer)
        if kind is CallKind.CHANGE_VISIBILITY:
            self._agenda.grant(queue_url, kind)
            self._lease_again(queue_url, now)
        else:
            self.hurry_deletes(now, queue_url)

    def _lease_again(self, queue_url: str, now: float) -> None:
        for lease in self._register:
            if lease.queue_url == queue_url and lease.status is LeaseStatus.REFUSED:
                lease.status = LeaseStatus.OWNED
                self._expiry_handler.note_expiry(lease, now)
                self._register.schedule(lease)

    def _stop_leasing(self, queue_url: str, now: float) -> None:
        """Let leases lapse whose goal is release, and show that the others are not extended."""
        for lease in [each for each in self._register if each.queue_url == queue_url]:
            if lease.goal is Goal.RELEASE:
                self._expiry_handler.lapse(lease, now)
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
