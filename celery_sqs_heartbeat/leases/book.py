"""The book of leases: the held messages, their goals, and what SQS has confirmed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import Answer, Call, CallKind, Entry, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs, receipt_of
from celery_sqs_heartbeat.leases.register import Board, Register
from celery_sqs_heartbeat.leases.results import Results


class LeaseBook(Register):
    """Brings every lease to its goal: plans calls and applies their results.

    Not thread-safe: its keeper holds a lock around it. Time is always an argument, in
    monotonic seconds.

    Args:
        jitter: Returns a random number from 0 to 1 for the pauses between tries.
        board: Shows every change of a lease, if given.

    Attributes:
        results: Applies SQS's answers, and knows what queues refuse.
    """

    def __init__(self, jitter: Callable[[], float], board: Board | None = None) -> None:
        super().__init__(board)
        self.results = Results(self, jitter)

    def receive(self, receive: Receive, *, terms: LeaseTerms) -> ReceivedAs:
        """Begin a lease on a message that was just received, or continue its lease.

        If the lease begins or continues with this receive, an event reports it. The event's cause
        is the returned value.
        """
        taken = self._receive(receive, terms)
        self._release_stopped(receive.arrived_at)
        return taken

    def done(self, receipt_handle: str, now: float, cause: str = "") -> bool:
        """Set the goal to delete the message: its task has succeeded. False if unknown.

        `cause` is the reason, for the events, if it is another.
        """
        lease = self.get(receipt_handle)
        if lease is None:
            return False
        if lease.goal is Goal.HOLD:
            due = self.agenda.ack_due(lease, now)
            self.set_goal(lease, Goal.DELETE, now, due=due)
            lease.cause = cause
        elif lease.goal is Goal.RELEASE:
            # Its task continued after the release, and still succeeded.
            self.finished.add(lease.key)
            if lease.pending is not Action.RELEASE:
                if lease.attempts or lease.is_isolated:
                    # A release was tried: no extension may follow it.
                    lease.terms = replace(lease.terms, extend=False)
                self.set_goal(lease, Goal.DELETE, now, due=now)
        self.schedule(lease)
        return True

    def release(self, receipt_handle: str, delay: float, now: float, cause: str = "") -> bool:
        """Set the goal to make the message visible after `delay` seconds. False if unknown.

        `cause` is the reason, for the events.

        A release that may come too late is not sent. On a standard queue its stale handle
        would break the lease of a worker that has received the message since.
        """
        lease = self.get(receipt_handle)
        if lease is not None and lease.goal is Goal.HOLD:
            # This comes first, because it may raise. Then nothing may have been stopped yet.
            seconds = policy.cut_release_delay(lease, delay, now)
            self.order.stop_behind(lease)
            self._release_stopped(now)
            self._release(lease, seconds, now, cause)
        return lease is not None

    def let_expire(self, receipt_handle: str, now: float, cause: str = "") -> bool:
        """Stop extending, so that the lease expires. False if unknown.

        Args:
            cause: The reason. It is reported, unless it is empty.
        """
        lease = self.get(receipt_handle)
        if lease is not None:
            if cause and lease.goal is Goal.HOLD:
                self.report(EventKind.MESSAGE_LAPSING, lease, now, cause=cause)
            self.forget(lease)
            self._release_stopped(now)
        return lease is not None

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for an earlier one of its group. False if unknown."""
        lease = self.get(receipt_handle)
        return lease is not None and self.order.waits_behind(lease)

    def note_start(self, receipt_handle: str, now: float) -> bool:
        """Note and report that the message's task begins. False if unknown."""
        lease = self.get(receipt_handle)
        if lease is not None:
            lease.started_at = now
            self.report(EventKind.TASK_STARTED, lease, now)
        return lease is not None

    def resume(self, lease: Lease, now: float, *, was_releasing: bool) -> None:
        """Continue a lease of an earlier book, as the owner of the lease knows it.

        Args:
            was_releasing: Whether a release may have been sent. It is not sent again: if it took
                effect, the message may be someone else's by now.
        """
        self.add(lease)
        lease.lasts_until(lease.expires_at, lease.last_timeout)
        if lease.goal is not Goal.HOLD:
            lease.end_at = now
        # Shown before it may be forgotten, because its owner waits for the report of its end.
        self.schedule(lease)
        if was_releasing and lease.goal is Goal.RELEASE:
            self.stale_calls.note_release(lease.key, lease.receipt_handle, lease.expires_at)
            self.report(EventKind.MESSAGE_LAPSING, lease, now)
            self.forget(lease)
        else:
            self.expire_if_due(lease, now)
        self._release_stopped(now)

    def plan(self, now: float, room: int) -> list[Call]:
        """Return the calls to make now, most urgent first, at most `room` of them."""
        for lease in self.agenda.pop_expired(now):
            if not self.expire_if_due(lease, now):
                self.note_expiry(lease, now)
                self.schedule(lease)
        self._release_stopped(now)
        calls = self.agenda.plan(now, room, self.due_entry)
        self._release_stopped(now)
        for call in calls:
            self.stale_calls.note_sent(call)
            for entry in call.entries:
                if entry.action is Action.RELEASE:
                    # Shown before it is sent, so that the leases' next keeper does not repeat it.
                    self.show(entry.lease)
        return calls

    def give_up(self, now: float, may_be_sent: Callable[[Call], bool]) -> list[Call]:
        """Give up the calls that take too long, and return them. Their leases join other calls.

        If a call may have been sent, its outcomes are unknown. A late answer is still applied.

        Args:
            may_be_sent: Prevents that a call is sent, and returns whether it may have been sent.
        """
        calls = self.agenda.overdue(now)
        for call in calls:
            outcome = Outcome.UNKNOWN if may_be_sent(call) else Outcome.FAILED
            self.apply_results(call, [outcome] * len(call.entries), now)
        return calls

    def apply_results(self, call: Call, outcomes: Sequence[Outcome], now: float) -> None:
        """Apply SQS's answers to the entries of a call, in the same order."""
        self.stale_calls.note_answers(call, outcomes, now)
        if self.agenda.end(call):
            self.results.note_answers(call, outcomes, now)
            apply = self.results.apply
        else:
            apply = self.results.apply_late
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            lease = entry.lease
            # After a redelivery, the answer is about an old handle and no longer counts.
            if self.holds(lease) and entry.receipt_handle == lease.receipt_handle:
                apply(entry, outcome, call, now)
            self._note_limit(entry)
            if self.holds(lease):
                self.schedule(lease)
        self._release_stopped(now)

    def _receive(self, receive: Receive, terms: LeaseTerms) -> ReceivedAs:
        now = receive.arrived_at
        lease = self.of_message(receive.key)
        is_finished = receive.key in self.finished
        receipt = receipt_of(receive, lease, is_finished=is_finished, stale_calls=self.stale_calls)
        if receive.has_lapsed and lease is not None:
            # The message was received again since, if only by this late answer. So our handle is
            # stale, and a release by it would break the lease of the current owner.
            lease.is_exclusive = False
            if not self.expire_if_due(lease, now):
                self.schedule(lease)
        if receipt in (ReceivedAs.LAPSED, ReceivedAs.RELEASED):
            return receipt
        if lease is not None and receive.is_older_than(lease):
            # The lease keeps its newer handle. On a standard queue, SQS would confirm a delete by
            # the older one, but delete nothing.
            self.add_handle(lease, receive.receipt_handle)
            return receipt
        is_released = self.stale_calls.releases(
            receive.key, receive.receipt_handle, receive.sent_at, now
        )
        if lease is not None and lease.goal is Goal.RELEASE:
            self._end_by_redelivery(lease, now)
            lease = None
        if lease is None:
            lease = receive.new_lease(terms)
            self.add(lease)
            if receipt is ReceivedAs.FINISHED:
                self.set_goal(lease, Goal.DELETE, now, due=now)
        receive.describe(lease)
        self._go_on(lease, receive, is_certain=not is_released)
        self.report(EventKind.MESSAGE_RECEIVED, lease, now, cause=receipt.value)
        return receipt

    def _go_on(self, lease: Lease, receive: Receive, *, is_certain: bool) -> None:
        """Begin or continue a lease with its latest receive."""
        key, handle = receive.key, receive.receipt_handle
        is_refused = self.results.is_refused(receive.queue_url, CallKind.CHANGE_VISIBILITY)
        lease.status = LeaseStatus.REFUSED if is_refused else LeaseStatus.OWNED
        lease.limit = self.stale_calls.limit(key, handle)
        limit = self.stale_calls.limit(key, handle, receive.sent_at)
        self.add_handle(lease, handle)
        lease.receipt_handle, lease.receive_count = handle, receive.receive_count
        lease.received_at, lease.last_timeout = receive.sent_at, receive.hidden_for
        lease.attempts = lease.extensions = 0
        lease.is_isolated, lease.is_exclusive = False, is_certain
        expires_at = policy.first_expiry(
            sent_at=receive.sent_at,
            arrived_at=receive.arrived_at,
            visibility_timeout=min(receive.hidden_for, limit),
            threshold=min(lease.terms.threshold, limit),
        )
        lease.lasts_until(expires_at, limit)
        lease.hidden_until = max(expires_at, receive.arrived_at + receive.hidden_for)
        self.order.add(lease)
        if lease.goal is Goal.DELETE:
            lease.end_at = receive.arrived_at
        self.schedule(lease)

    def _end_by_redelivery(self, lease: Lease, now: float) -> None:
        """End a lease whose goal was release, because its message was received again.

        If the lease had not expired, a release in flight has taken effect: nothing else can have
        made the message visible. Its answer is ignored.
        """
        release = self.agenda.release_of(lease)
        if release is None or now >= lease.expires_at:
            self.lapse(lease, now)
            return
        answer = Answer(*release, Outcome.DONE)
        self.report(EventKind.MESSAGE_RELEASED, lease, now, answer)
        self.forget(lease)

    def _release_stopped(self, now: float) -> None:
        """Release the messages that wait behind a message that stops its group."""
        while stopped := self.order.take_stopped():
            for lease, cause in stopped:
                if self.holds(lease) and lease.goal is Goal.HOLD:
                    self._release(lease, 0, now, cause)

    def _release(self, lease: Lease, delay: int, now: float, cause: str) -> None:
        lease.release_delay = delay
        self.set_goal(lease, Goal.RELEASE, now, due=now)
        lease.cause = cause
        if not self.expire_if_due(lease, now):
            self.schedule(lease)

    def _note_limit(self, entry: Entry) -> None:
        lease = self.of_message(entry.lease.key)
        if lease is not None and lease.limit < math.inf:
            lease.limit = self.stale_calls.limit(lease.key, lease.receipt_handle)
