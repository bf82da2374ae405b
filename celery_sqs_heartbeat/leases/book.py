"""The book of leases: the held messages, their goals, and what SQS has confirmed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.actions import is_lost
from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.calls import Call, Entry, Outcome
from celery_sqs_heartbeat.leases.event_buffer import EventBuffer
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.expiry_handler import ExpiryHandler
from celery_sqs_heartbeat.leases.group_order import GroupOrder
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.leases.receiving import Receiving
from celery_sqs_heartbeat.leases.refusals import Refusals
from celery_sqs_heartbeat.leases.register import Register
from celery_sqs_heartbeat.leases.result_handler import ResultHandler
from celery_sqs_heartbeat.leases.stale_calls import StaleCalls


class LeaseBook:
    """Brings every lease to its goal: plans calls and applies their results.

    Not thread-safe: its keeper holds a lock around it. Time is always an argument, in
    monotonic seconds.

    Args:
        jitter: Returns a random number from 0 to 1 for the pauses between tries.
        board: Shows every change of a lease, if given.
    """

    def __init__(self, jitter: Callable[[], float], board: Board | None = None) -> None:
        self._order = GroupOrder()
        self.agenda, self._stale_calls, self._event_buffer = (
            Agenda(),
            StaleCalls(),
            EventBuffer(self._order),
        )
        self._register = Register(
            agenda=self.agenda, stale_calls=self._stale_calls, board=board, order=self._order
        )
        self._expiry_handler = ExpiryHandler(
            register=self._register, agenda=self.agenda, event_buffer=self._event_buffer
        )
        self._refusals = Refusals(
            register=self._register,
            agenda=self.agenda,
            expiry_handler=self._expiry_handler,
            event_buffer=self._event_buffer,
            jitter=jitter,
        )
        self._result_handler = ResultHandler(
            register=self._register,
            expiry_handler=self._expiry_handler,
            refusals=self._refusals,
            event_buffer=self._event_buffer,
            jitter=jitter,
        )
        self._receiving = Receiving(
            register=self._register,
            agenda=self.agenda,
            stale_calls=self._stale_calls,
            refusals=self._refusals,
            expiry_handler=self._expiry_handler,
            event_buffer=self._event_buffer,
        )

    def __len__(self) -> int:
        return len(self._register)

    def get(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle."""
        return self._register.get(receipt_handle)

    def leases(self) -> Iterable[Lease]:
        """Return the leases of the book."""
        return self._register

    @property
    def ending(self) -> int:
        """How many leases wait for their delete or release to be confirmed."""
        return self._register.ending

    def receive(
        self,
        receive: Receive,
        *,
        terms: LeaseTerms,
        receipt: ReceivedAs | None = None,
        is_certain: bool = True,
    ) -> ReceivedAs:
        """Begin a lease on a message that was just received, or continue its lease.

        If the lease begins or continues with this receive, an event reports it. The event's cause
        is the returned value.

        Args:
            receipt: The receiver's decision; None to decide here.
            is_certain: Whether the receiver knows of no release that may end the lease.
        """
        taken = self._receiving.receive(
            receive, terms=terms, receipt=receipt, is_certain=is_certain
        )
        self._release_stopped(receive.arrived_at)
        return taken

    def done(self, receipt_handle: str, now: float, cause: str = "") -> bool:
        """Set the goal to delete the message: its task has succeeded. False if unknown.

        `cause` is the reason, for the events, if it is another.
        """
        lease = self._register.get(receipt_handle)
        if lease is None:
            return False
        if lease.goal is Goal.HOLD:
            due = self.agenda.ack_due(lease, now)
            self._register.set_goal(lease, Goal.DELETE, now, due=due)
            lease.cause = cause
        elif lease.goal is Goal.RELEASE:
            # Its task continued after the release, and still succeeded.
            self._register.finished.add(lease.key)
            if lease.pending is not Action.RELEASE:
                if lease.attempts or lease.is_isolated:
                    # A release was tried: no extension may follow it.
                    lease.terms = replace(lease.terms, extend=False)
                self._register.set_goal(lease, Goal.DELETE, now, due=now)
        self._register.schedule(lease)
        return True

    def release(self, receipt_handle: str, delay: float, now: float, cause: str = "") -> bool:
        """Set the goal to make the message visible after `delay` seconds. False if unknown.

        `cause` is the reason, for the events.

        A release that may come too late is not sent. On a standard queue its stale handle
        would break the lease of a worker that has received the message since.
        """
        lease = self._register.get(receipt_handle)
        if lease is not None and lease.goal is Goal.HOLD:
            # This comes first, because it may raise. Then nothing may have been stopped yet.
            seconds = policy.cut_release_delay(lease, delay, now)
            self._order.stop_behind(lease)
            self._release_stopped(now)
            self._release(lease, seconds, now, cause)
        return lease is not None

    def let_expire(self, receipt_handle: str, now: float, cause: str = "") -> bool:
        """Stop extending, so that the lease expires. False if unknown.

        Args:
            cause: The reason. It is reported, unless it is empty.
        """
        lease = self._register.get(receipt_handle)
        if lease is not None:
            if cause and lease.goal is Goal.HOLD:
                self._event_buffer.report(EventKind.MESSAGE_LAPSING, lease, now, cause=cause)
            self._register.forget(lease)
            self._release_stopped(now)
        return lease is not None

    def disown(self, receipt_handle: str, now: float) -> bool:
        """Give the message up: make no more calls for it. False if unknown.

        Unlike after `let_expire`, the book remembers its handles. So a late ack is not mistaken
        for the ack of a message without a lease, and does not delete another worker's message.
        """
        lease = self._register.get(receipt_handle)
        if lease is not None:
            for handle in lease.handles:
                self._register.disowned.add(handle)
            self._register.forget(lease)
            self._release_stopped(now)
        return lease is not None

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for an earlier one of its group. False if unknown."""
        lease = self._register.get(receipt_handle)
        return lease is not None and self._order.waits_behind(lease)

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        return receipt_handle in self._register.disowned

    def is_lost(self, receipt_handle: str, now: float) -> bool:
        """Return whether a message is no longer ours, or was given up. False if unknown."""
        lease = self._register.get(receipt_handle)
        return lease is not None and is_lost(lease, now)

    def note_start(self, receipt_handle: str, now: float) -> bool:
        """Note and report that the message's task begins. False if unknown."""
        lease = self._register.get(receipt_handle)
        if lease is not None:
            lease.started_at = now
            self._event_buffer.report(EventKind.TASK_STARTED, lease, now)
        return lease is not None

    def resume(self, lease: Lease, now: float, *, was_releasing: bool) -> None:
        """Continue a lease of an earlier book, as the owner of the lease knows it.

        Args:
            was_releasing: Whether a release may have been sent. It is not sent again: if it took
                effect, the message may be someone else's by now.
        """
        self._register.add(lease)
        lease.lasts_until(lease.expires_at, lease.last_timeout)
        if lease.goal is not Goal.HOLD:
            lease.end_at = now
        # Shown before it may be forgotten, because its owner waits for the report of its end.
        self._register.schedule(lease)
        if was_releasing and lease.goal is Goal.RELEASE:
            self._event_buffer.report(EventKind.MESSAGE_LAPSING, lease, now)
            self._register.forget(lease)
        else:
            self._expiry_handler.expire_if_due(lease, now)
        self._release_stopped(now)

    def plan(self, now: float, room: int) -> list[Call]:
        """Return the calls to make now, most urgent first, at most `room` of them."""
        for lease in self.agenda.pop_expired(now):
            if not self._expiry_handler.expire_if_due(lease, now):
                self._expiry_handler.note_expiry(lease, now)
                self._register.schedule(lease)
        self._release_stopped(now)
        calls = self.agenda.plan(now, room, self._expiry_handler.due_entry)
        self._release_stopped(now)
        for call in calls:
            self._stale_calls.note_sent(call)
            for entry in call.entries:
                if entry.action is Action.RELEASE:
                    # Shown before it is sent, so that the leases' next keeper does not repeat it.
                    self._register.show(entry.lease)
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
        is_late = not self.agenda.end(call)
        self._stale_calls.note_answers(call, outcomes, now)
        if not is_late:
            self._refusals.note_answers(call, outcomes, now)
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            lease = entry.lease
            # After a redelivery, the answer is about an old handle and no longer counts.
            if self._register.holds(lease) and entry.receipt_handle == lease.receipt_handle:
                if is_late:
                    self._result_handler.apply_late_result(entry, outcome, call, now)
                else:
                    self._result_handler.apply_results(entry, outcome, call, now)
            self._note_limit(entry)
            if self._register.holds(lease):
                self._register.schedule(lease)
        self._release_stopped(now)

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answer, except those given up."""
        return self.agenda.in_flight

    def next_due(self, now: float, room: int = 1) -> float:
        """Return when `plan` or `give_up` next has something to do, or infinity.

        Args:
            room: How many more calls may be made. Without room, expiries still count.
        """
        return self.agenda.next_due(now, room)

    @property
    def has_news(self) -> bool:
        """Whether `take_events` would return any event that is worth a wake-up."""
        return bool(self._event_buffer)

    def take_events(self) -> list[Event]:
        """Return the events since the last call of this method."""
        return self._event_buffer.take()

    def hurry_deletes(self, now: float) -> None:
        """Make deletes that wait for another try due now, because the worker shuts down.

        Refusals are forgotten, so that their pauses start again from the shortest.
        """
        self._refusals.hurry_deletes(now)

    def _release_stopped(self, now: float) -> None:
        """Release the messages that wait behind a message that stops its group."""
        while stopped := self._order.take_stopped():
            for lease, cause in stopped:
                if self._register.holds(lease) and lease.goal is Goal.HOLD:
                    self._release(lease, 0, now, cause)

    def _release(self, lease: Lease, delay: int, now: float, cause: str) -> None:
        lease.release_delay = delay
        self._register.set_goal(lease, Goal.RELEASE, now, due=now)
        lease.cause = cause
        if not self._expiry_handler.expire_if_due(lease, now):
            self._register.schedule(lease)

    def _note_limit(self, entry: Entry) -> None:
        lease = self._register.of_message(entry.lease.key)
        if lease is not None and lease.limit < math.inf:
            lease.limit = self._stale_calls.limit(lease.key, lease.receipt_handle)
