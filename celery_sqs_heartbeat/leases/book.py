"""The book of leases: what is held, what is wanted, what SQS has confirmed."""

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
from celery_sqs_heartbeat.leases.lane import LaneView
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.leases.receiving import Receiving
from celery_sqs_heartbeat.leases.refusals import Refusals
from celery_sqs_heartbeat.leases.register import Register
from celery_sqs_heartbeat.leases.result_handler import ResultHandler
from celery_sqs_heartbeat.leases.stale_calls import StaleCalls


class LeaseBook:
    """Brings every lease to its wanted end by the calls it plans and settles.

    Not thread-safe: its keeper holds a lock around it. Time is always an argument, in
    monotonic seconds.

    Args:
        jitter: Returns a random number from 0 to 1 for the pauses between tries.
        board: Shown every change of a lease, where one is given.
    """

    def __init__(self, jitter: Callable[[], float], board: Board | None = None) -> None:
        self._order = GroupOrder()
        self._agenda, self._stale_calls, self._event_buffer = (
            Agenda(),
            StaleCalls(),
            EventBuffer(self._order),
        )
        self._register = Register(
            agenda=self._agenda, strays=self._stale_calls, board=board, order=self._order
        )
        self._lapsing = ExpiryHandler(
            register=self._register, agenda=self._agenda, news=self._event_buffer
        )
        self._refusals = Refusals(
            register=self._register,
            agenda=self._agenda,
            lapsing=self._lapsing,
            news=self._event_buffer,
            jitter=jitter,
        )
        self._settling = ResultHandler(
            register=self._register,
            lapsing=self._lapsing,
            refusals=self._refusals,
            news=self._event_buffer,
            jitter=jitter,
        )
        self._receiving = Receiving(
            register=self._register,
            strays=self._stale_calls,
            refusals=self._refusals,
            lapsing=self._lapsing,
            news=self._event_buffer,
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
        """Begin a lease on a message that was just received, or go on with one.

        It is reported, with what it is as the cause, unless it has lapsed.

        Args:
            receipt: What its receiver has decided that it is; decided here without it.
            is_certain: Whether its receiver knows of no release that may end it.
        """
        taken = self._receiving.receive(
            receive, terms=terms, receipt=receipt, is_certain=is_certain
        )
        self._release_stopped(receive.arrived_at)
        return taken

    def done(self, receipt_handle: str, now: float) -> bool:
        """Want the message deleted: its task has ended well. False when it is unknown."""
        lease = self._register.get(receipt_handle)
        if lease is None:
            return False
        if lease.goal is Goal.HOLD:
            # The next of its group waits for the delete.
            due = now if lease.is_in_order else now + policy.GATHER_SECONDS
            self._register.set_goal(lease, Goal.DELETE, now, due=due)
        elif lease.goal is Goal.RELEASE:
            # Released under a task that went on and succeeded all the same.
            self._register.finished.add(lease.key)
            if lease.pending is not Action.RELEASE:
                if lease.attempts or lease.is_isolated:
                    # A release was tried: no extension may follow it.
                    lease.terms = replace(lease.terms, extend=False)
                self._register.set_goal(lease, Goal.DELETE, now, due=now)
        self._register.schedule(lease)
        return True

    def release(self, receipt_handle: str, delay: float, now: float, cause: str = "") -> bool:
        """Want the message visible again after `delay` seconds. False when it is unknown.

        `cause` is for whoever reads the events.

        A release that may come too late is not sent: on a standard queue the stale handle
        would break the lease of whoever has received the message since.
        """
        lease = self._register.get(receipt_handle)
        if lease is not None and lease.goal is Goal.HOLD:
            # First: where it raises, nothing may have been stopped.
            seconds = policy.cut_release_delay(lease, delay, now)
            self._order.stop_behind(lease)
            self._release_stopped(now)
            self._release(lease, seconds, now, cause)
        return lease is not None

    def let_expire(self, receipt_handle: str, now: float, cause: str = "") -> bool:
        """Stop extending and let the message become visible by itself. False when unknown.

        Args:
            cause: Why it is left to that; reported, unless empty.
        """
        lease = self._register.get(receipt_handle)
        if lease is not None:
            if cause and lease.goal is Goal.HOLD:
                self._event_buffer.report(EventKind.MESSAGE_LAPSING, lease, now, cause=cause)
            self._register.forget(lease)
            self._release_stopped(now)
        return lease is not None

    def disown(self, receipt_handle: str, now: float) -> bool:
        """Give the message up: nothing is asked of SQS for it again. False when unknown.

        Unlike `drop` it is remembered, so that an ack which comes late is not taken for
        that of a message which never had a lease, and does not delete what is someone else's.
        """
        lease = self._register.get(receipt_handle)
        if lease is not None:
            for handle in lease.handles:
                self._register.disowned.add(handle)
            self._register.forget(lease)
            self._release_stopped(now)
        return lease is not None

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for another of its group. False when unknown."""
        lease = self._register.get(receipt_handle)
        return lease is not None and self._order.waits_behind(lease)

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        return receipt_handle in self._register.disowned

    def is_lost(self, receipt_handle: str, now: float) -> bool:
        """Return whether a message is not ours any more, or was given up. False when unknown."""
        lease = self._register.get(receipt_handle)
        return lease is not None and is_lost(lease, now)

    def note_start(self, receipt_handle: str, now: float) -> bool:
        """Note and report that the message's task begins. False when it is unknown."""
        lease = self._register.get(receipt_handle)
        if lease is not None:
            lease.started_at = now
            self._event_buffer.report(EventKind.TASK_STARTED, lease, now)
        return lease is not None

    def resume(self, lease: Lease, now: float, *, was_releasing: bool) -> None:
        """Go on with a lease of a book that is gone, as its owner knows it.

        Args:
            was_releasing: A release of it may have been sent. It is not sent again: if it took
                effect, the message may be someone else's by now.
        """
        self._register.add(lease)
        lease.lasts_until(lease.expires_at, lease.last_timeout)
        if lease.goal is not Goal.HOLD:
            lease.end_at = now
        # Shown before it may be forgotten: its owner waits to hear of its end.
        self._register.schedule(lease)
        if was_releasing and lease.goal is Goal.RELEASE:
            self._event_buffer.report(EventKind.MESSAGE_LAPSING, lease, now)
            self._register.forget(lease)
        elif not self._lapsing.let_lapse(lease, now):
            self._register.watch_expiry(lease)
        self._release_stopped(now)

    def plan(self, now: float, room: int) -> list[Call]:
        """Return the calls to make now, most urgent first, at most `room` of them."""
        for lease in self._register.pop_expired(now):
            if not self._lapsing.let_lapse(lease, now):
                self._lapsing.note_expiry(lease, now)
                self._register.schedule(lease)
        self._release_stopped(now)
        calls = self._agenda.plan(now, room, self._lapsing.due_entry)
        self._release_stopped(now)
        for call in calls:
            self._stale_calls.note_sent(call)
            for entry in call.entries:
                if entry.action is Action.RELEASE:
                    # Before it is sent: the next keeper of these leases must not repeat it.
                    self._register.show(entry.lease)
        return calls

    def give_up(self, now: float, may_be_sent: Callable[[Call], bool]) -> list[Call]:
        """Give up the calls that take too long, and return them: their leases join others.

        What became of one that may be sent is unknown. An answer that comes all the same is
        settled late.

        Args:
            may_be_sent: Sends nothing for a call any more, and returns whether it may have been.
        """
        calls = self._agenda.overdue(now)
        for call in calls:
            outcome = Outcome.UNKNOWN if may_be_sent(call) else Outcome.FAILED
            self._settle(call, [outcome] * len(call.entries), now)
            self._agenda.note_stuck(call, now)
        return calls

    def apply_results(self, call: Call, outcomes: Sequence[Outcome], now: float) -> None:
        """Take in what SQS answered to each entry of a call, in their order."""
        if self._settle(call, outcomes, now):
            self._agenda.note_answer(call, now)

    def view(self) -> list[LaneView]:
        """Return what waits for calls, for each queue and kind of call."""
        return self._agenda.view()

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answer, those given up left out."""
        return self._agenda.in_flight

    def next_due(self, now: float, room: int = 1) -> float:
        """Return when `plan` or `give_up` next has something to do; infinity for never.

        Args:
            room: For how many more calls there is room. Without any, expiries still count.
        """
        expiry = self._register.next_expiry()
        due = self._agenda.next_due(now, room)
        return due if expiry is None else min(due, expiry)

    @property
    def has_news(self) -> bool:
        """Whether `take_events` would return any that somebody waits for."""
        return bool(self._event_buffer)

    def take_events(self) -> list[Event]:
        """Return what has happened since the last call of this."""
        return self._event_buffer.take()

    def hurry_deletes(self, now: float) -> None:
        """Make deletes due that wait for another try: a worker ends.

        Refusals are forgotten, so that pauses begin anew.
        """
        self._refusals.hurry_deletes(now)

    def _settle(self, call: Call, outcomes: Sequence[Outcome], now: float) -> bool:
        is_late = not self._agenda.end(call)
        self._stale_calls.note_answers(call, outcomes, now)
        if not is_late:
            self._refusals.note_answers(call, outcomes, now)
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            lease = entry.lease
            # After a redelivery the answer speaks of a handle that no longer counts.
            if self._register.holds(lease) and entry.receipt_handle == lease.receipt_handle:
                if is_late:
                    self._settling.settle_late(entry, outcome, call, now)
                else:
                    self._settling.apply_results(entry, outcome, call, now)
            self._note_limit(entry)
            if self._register.holds(lease):
                self._register.schedule(lease)
                if lease.goal is Goal.RELEASE:
                    # Not watched while its release was under way.
                    self._register.watch_expiry(lease)
        self._release_stopped(now)
        return not is_late

    def _release_stopped(self, now: float) -> None:
        """Release what waits behind messages that stop their groups."""
        while stopped := self._order.take_stopped():
            for lease, cause in stopped:
                if self._register.holds(lease) and lease.goal is Goal.HOLD:
                    self._release(lease, 0, now, cause)

    def _release(self, lease: Lease, delay: int, now: float, cause: str) -> None:
        lease.release_delay = delay
        self._register.set_goal(lease, Goal.RELEASE, now, due=now)
        lease.cause = cause
        if not self._lapsing.let_lapse(lease, now):
            self._register.schedule(lease)

    def _note_limit(self, entry: Entry) -> None:
        lease = self._register.of_message(entry.lease.key)
        if lease is not None and lease.limit < math.inf:
            lease.limit = self._stale_calls.limit(lease.key, lease.receipt_handle)
