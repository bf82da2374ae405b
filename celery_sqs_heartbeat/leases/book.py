"""The book of leases: what is held, what is wanted, what SQS has confirmed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.actions import entry_for, is_lost, may_be_saved, next_action
from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.calls import Answer, Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.expiry import ExpiryWatch
from celery_sqs_heartbeat.leases.lane import LaneView
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseTerms, Standing, State
from celery_sqs_heartbeat.leases.receipts import Receipt, Receive, receipt_of
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.leases.settle import Settler
from celery_sqs_heartbeat.leases.strays import Strays

#: For the record only, and so frequent that they are not worth a wake-up.
_NO_NEWS = frozenset({EventKind.MESSAGE_RECEIVED, EventKind.TASK_STARTED})


class LeaseBook:
    """Brings every lease to its wanted end by the calls it plans and settles.

    Not thread-safe: its keeper holds a lock around it. Time is always an argument, in
    monotonic seconds.

    Args:
        jitter: Returns a random number from 0 to 1 for the pauses between tries.
        board: Shown every change of a lease, where one is given.
    """

    def __init__(self, jitter: Callable[[], float], board: Board | None = None) -> None:
        self._board = board
        self._by_key: dict[tuple[str, str], Lease] = {}
        self._by_handle: dict[str, Lease] = {}
        self._finished = RecentKeys[tuple[str, str]]()
        self._disowned = RecentKeys[str]()
        self._ending = 0
        self._events: list[Event] = []
        self._has_news = False
        self._agenda = Agenda(self._due_entry)
        self._expiries = ExpiryWatch()
        self._strays = Strays()
        self._settler = Settler(self, jitter)

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle."""
        return self._by_handle.get(receipt_handle)

    def holds(self, lease: Lease) -> bool:
        """Return whether this very lease is still in the book."""
        return self._by_key.get(lease.key) is lease

    def leases(self) -> Iterable[Lease]:
        """Return the leases of the book."""
        return self._by_key.values()

    @property
    def ending(self) -> int:
        """How many leases wait for their delete or release to be confirmed."""
        return self._ending

    def receive(
        self,
        receive: Receive,
        *,
        terms: LeaseTerms,
        task: str | None = None,
        task_id: str | None = None,
        max_receive_count: int | None = None,
        sent_time: float | None = None,
        first_received_time: float | None = None,
        receipt: Receipt | None = None,
        is_certain: bool = True,
    ) -> Receipt:
        """Begin a lease on a message that was just received, or go on with one.

        It is reported, with what it is as the cause, unless it has lapsed.

        Args:
            receipt: What its receiver has decided that it is; decided here without it.
            is_certain: Whether its receiver knows of no release that may end it.
        """
        now = receive.arrived_at
        lease = self._by_key.get(receive.key)
        if receipt is None:
            receipt = receipt_of(
                receive, lease, is_finished=receive.key in self._finished, strays=self._strays
            )
        if receive.has_lapsed and lease is not None:
            # It was received again since, if only by this late answer: our handle is
            # stale, and a release by it would break the lease of the one that has it now.
            lease.certain = False
            if not self._let_lapse(lease, now):
                self.schedule(lease)
        if receipt in (Receipt.LAPSED, Receipt.RELEASED):
            return receipt
        if lease is not None and receive.is_older_than(lease):
            # The lease keeps its handle: on a standard queue a delete by the older one would be
            # confirmed, and delete nothing.
            lease.add_handle(receive.receipt_handle)
            self._by_handle[receive.receipt_handle] = lease
            return receipt
        is_released = self._strays.releases(
            receive.key, receive.receipt_handle, receive.sent_at, now
        )
        if lease is not None and lease.state is State.BACK:
            self._end_by_redelivery(lease, now)
            lease = None
        if lease is None:
            lease = Lease(
                queue_url=receive.queue_url,
                message_id=receive.message_id,
                terms=terms,
                held_since=receive.sent_at,
                task=task,
                task_id=task_id,
            )
            self._by_key[lease.key] = lease
            if receipt is Receipt.FINISHED:
                self._want_done(lease, now)
        lease.max_receive_count = max_receive_count
        lease.sent_time, lease.first_received_time = sent_time, first_received_time
        self._go_on(lease, receive, is_certain=is_certain and not is_released)
        self.report(EventKind.MESSAGE_RECEIVED, lease, now, cause=receipt.value)
        return receipt

    def _go_on(self, lease: Lease, receive: Receive, *, is_certain: bool) -> None:
        """Have a lease go on, or begin, by its latest receive."""
        key, handle = receive.key, receive.receipt_handle
        is_refused = self._settler.is_refused(receive.queue_url, CallKind.CHANGE_VISIBILITY)
        lease.standing = Standing.UNLEASED if is_refused else Standing.OURS
        lease.limit = self._strays.limit(key, handle)
        limit = self._strays.limit(key, handle, receive.sent_at)
        lease.take_receive(
            handle,
            receive_count=receive.receive_count,
            sent_at=receive.sent_at,
            hidden_until=receive.arrived_at + receive.hidden_for,
            hidden_for=receive.hidden_for,
            counts_for=limit,
            expires_at=policy.first_expiry(
                sent_at=receive.sent_at,
                arrived_at=receive.arrived_at,
                visibility_timeout=min(receive.hidden_for, limit),
                threshold=min(lease.terms.threshold, limit),
            ),
        )
        lease.certain = is_certain
        self._by_handle[handle] = lease
        if lease.state is State.DONE:
            lease.end_at = receive.arrived_at
        self.watch_expiry(lease)
        self.schedule(lease)

    def _end_by_redelivery(self, lease: Lease, now: float) -> None:
        """End a lease that was to be released, as its message has come back by now.

        A release under way has taken effect, whatever becomes of its answer, if the lease had not
        run out: nothing else can have brought the message back. Its answer is ignored.
        """
        release = self._release_under_way(lease)
        if release is None:
            self.report(EventKind.MESSAGE_LAPSING, lease, now)
        elif now < lease.expires_at:
            self.report(EventKind.MESSAGE_RELEASED, lease, now, Answer(*release, Outcome.DONE))
        else:
            self.report(EventKind.MESSAGE_LAPSING, lease, now, Answer(*release, Outcome.UNKNOWN))
        self.forget(lease)

    def done(self, receipt_handle: str, now: float) -> bool:
        """Want the message deleted: its task has ended well. False when it is unknown."""
        lease = self._by_handle.get(receipt_handle)
        if lease is None:
            return False
        if lease.state is State.HELD:
            self._want_done(lease, now)
        elif lease.state is State.BACK:
            # Released under a task that went on and succeeded all the same.
            self._finished.add(lease.key)
            if lease.pending is not Action.RELEASE:
                if lease.attempts or lease.alone:
                    # A release was tried: no extension may follow it.
                    lease.terms = replace(lease.terms, extend=False)
                lease.want(State.DONE, now, due=now)
        self.schedule(lease)
        return True

    def release(self, receipt_handle: str, delay: float, now: float, cause: str = "") -> bool:
        """Want the message visible again after `delay` seconds. False when it is unknown.

        `cause` is for whoever reads the events.

        A release that may come too late is not sent: on a standard queue the stale handle
        would break the lease of whoever has received the message since.
        """
        lease = self._by_handle.get(receipt_handle)
        if lease is not None and lease.state is State.HELD:
            lease.release_delay = policy.cut_release_delay(lease, delay, now)
            lease.want(State.BACK, now, due=now)
            lease.cause = cause
            self._ending += 1
            if not self._let_lapse(lease, now):
                self.schedule(lease)
        return lease is not None

    def drop(self, receipt_handle: str) -> bool:
        """Stop extending and let the message become visible by itself. False when unknown."""
        lease = self._by_handle.get(receipt_handle)
        if lease is not None:
            self.forget(lease)
        return lease is not None

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up: nothing is asked of SQS for it again. False when unknown.

        Unlike `drop` it is remembered, so that an ack which comes late is not taken for
        that of a message which never had a lease, and does not delete what is someone else's.
        """
        lease = self._by_handle.get(receipt_handle)
        if lease is not None:
            for handle in lease.handles:
                self._disowned.add(handle)
            self.forget(lease)
        return lease is not None

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        return receipt_handle in self._disowned

    def is_lost(self, receipt_handle: str, now: float) -> bool:
        """Return whether a message is not ours any more, or was given up. False when unknown."""
        lease = self._by_handle.get(receipt_handle)
        return lease is not None and is_lost(lease, now)

    def note_start(self, receipt_handle: str, now: float) -> bool:
        """Note and report that the message's task begins. False when it is unknown."""
        lease = self._by_handle.get(receipt_handle)
        if lease is not None:
            lease.started_at = now
            self.report(EventKind.TASK_STARTED, lease, now)
        return lease is not None

    def resume(self, lease: Lease, now: float, *, was_releasing: bool) -> None:
        """Go on with a lease of a book that is gone, as its owner knows it.

        Args:
            was_releasing: A release of it may have been sent. It is not sent again: if it took
                effect, the message may be someone else's by now.
        """
        self._by_key[lease.key] = lease
        self._by_handle.update(dict.fromkeys(lease.handles, lease))
        lease.lasts_until(lease.expires_at, lease.last_timeout)
        self._ending += lease.state is not State.HELD
        if lease.state is State.DONE:
            self._finished.add(lease.key)
        if lease.state is not State.HELD:
            lease.end_at = now
        # Shown before it may be forgotten: its owner waits to hear of its end.
        self.schedule(lease)
        if was_releasing and lease.state is State.BACK:
            self.report(EventKind.MESSAGE_LAPSING, lease, now)
            self.forget(lease)
        elif not self._let_lapse(lease, now):
            self.watch_expiry(lease)

    def plan(self, now: float, room: int) -> list[Call]:
        """Return the calls to make now, most urgent first, at most `room` of them."""
        for lease in self._expiries.pop_expired(now):
            if not self._let_lapse(lease, now):
                self.note_expiry(lease, now)
                self.schedule(lease)
        calls = self._agenda.plan(now, room)
        for call in calls:
            self._strays.note_sent(call)
            for entry in call.entries:
                if entry.action is Action.RELEASE and self._board is not None:
                    # Before it is sent: the next keeper of these leases must not repeat it.
                    self._board.show(entry.lease)
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

    def settle(self, call: Call, outcomes: Sequence[Outcome], now: float) -> None:
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
        expiry = self._expiries.next_time()
        due = self._agenda.next_due(now, room)
        return due if expiry is None else min(due, expiry)

    @property
    def has_news(self) -> bool:
        """Whether `take_events` would return any that somebody waits for."""
        return self._has_news

    def take_events(self) -> list[Event]:
        """Return what has happened since the last call of this."""
        events, self._events, self._has_news = self._events, [], False
        return events

    def forget(self, lease: Lease) -> None:
        """Remove every trace of a lease; an answer still under way is then ignored."""
        del self._by_key[lease.key]
        for handle in lease.handles:
            self._by_handle.pop(handle, None)
        self._ending -= lease.state is not State.HELD
        if lease.state is State.DONE:
            self._strays.forget(lease.key)
        self._expiries.discard(lease)
        self._agenda.discard(lease)
        if self._board is not None:
            self._board.remove(lease)

    def schedule(self, lease: Lease) -> None:
        """Place the lease by its next action, after whatever has changed of it."""
        self._agenda.put(lease)
        if self._board is not None:
            self._board.show(lease)

    def watch_expiry(self, lease: Lease) -> None:
        """Report when the lease expires, as its expiry is known now."""
        self._expiries.watch(lease)

    def refuse(self, queue_url: str, kind: CallKind, probe_at: float) -> None:
        """Probe a queue that refused such a call, with one entry, not before `probe_at`."""
        self._agenda.refuse(queue_url, kind, probe_at)

    def grant(self, queue_url: str, kind: CallKind) -> None:
        """Make such calls of a queue as usual again."""
        self._agenda.grant(queue_url, kind)

    def hurry_deletes(self, now: float, queue_url: str | None = None) -> None:
        """Make deletes that wait for another try due: of one queue, or of all.

        When it is all, a worker ends: refusals are forgotten, so that pauses begin anew.
        """
        if queue_url is None:
            self._settler.forget_refused_deletes()
        for lease in self.leases():
            is_meant = queue_url is None or lease.queue_url == queue_url
            if is_meant and lease.state is State.DONE and lease.attempts and lease.pending is None:
                lease.end_at = min(lease.end_at, now)
                self.schedule(lease)

    def report(
        self,
        kind: EventKind,
        lease: Lease,
        now: float,
        answer: Answer | None = None,
        cause: str = "",
    ) -> None:
        """Note an event for `take_events`."""
        self._events.append(Event.of(kind, lease, now, answer, cause))
        self._has_news = self._has_news or kind not in _NO_NEWS

    def _settle(self, call: Call, outcomes: Sequence[Outcome], now: float) -> bool:
        is_late = not self._agenda.end(call)
        self._strays.note_answers(call, outcomes, now)
        if not is_late:
            self._settler.note_answers(call, outcomes, now)
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            lease = entry.lease
            # After a redelivery the answer speaks of a handle that no longer counts.
            if self.holds(lease) and entry.receipt_handle == lease.receipt_handle:
                if is_late:
                    self._settler.settle_late(entry, outcome, call, now)
                else:
                    self._settler.settle(entry, outcome, call, now)
            self._note_limit(entry)
            if self.holds(lease):
                self.schedule(lease)
                if lease.state is State.BACK:
                    # Not watched while its release was under way.
                    self.watch_expiry(lease)
        return not is_late

    def _note_limit(self, entry: Entry) -> None:
        lease = self._by_key.get(entry.lease.key)
        if lease is not None and lease.limit < math.inf:
            lease.limit = self._strays.limit(lease.key, lease.receipt_handle)

    def _want_done(self, lease: Lease, now: float) -> None:
        lease.want(State.DONE, now, due=now + policy.GATHER_SECONDS)
        self._finished.add(lease.key)
        self._ending += 1

    def _due_entry(self, lease: Lease, now: float) -> Entry | None:
        if self._let_lapse(lease, now):
            return None
        if (
            now >= lease.expires_at
            and next_action(lease) is Action.EXTEND
            and not self._worth_a_late_extension(lease, now)
        ):
            self.schedule(lease)
            return None
        entry = entry_for(lease, now)
        if entry is None:
            lease.standing = Standing.CAPPED
            self.report(EventKind.LEASE_CAPPED, lease, now)
            self.schedule(lease)
        return entry

    def note_expiry(self, lease: Lease, now: float) -> None:
        """Report, once, that our clock has passed the expiry of a lease.

        Not of one whose task has ended: its lease serves no one any more.
        """
        if now >= lease.expires_at and lease.standing in (Standing.OURS, Standing.UNLEASED):
            lease.standing = Standing.EXPIRED
            # Tries begin afresh: one soon may still save it, and haste is over after that.
            lease.attempts = min(lease.attempts, 1)
            if lease.state is State.HELD:
                self.report(EventKind.LEASE_EXPIRED, lease, now)

    def _let_lapse(self, lease: Lease, now: float) -> bool:
        """Forget a lease that is to be released, but may be someone else's; return whether."""
        is_ours = lease.certain and now < lease.expires_at
        if lease.state is not State.BACK or (
            is_ours and lease.standing not in (Standing.LOST, Standing.UNLEASED)
        ):
            return False
        self.lapse(lease, now)
        return True

    def lapse(self, lease: Lease, now: float) -> None:
        """Report that a lease becomes visible by itself, and forget it.

        A release of it may be under way: then no one knows what becomes of that.
        """
        release = self._release_under_way(lease)
        answer = None if release is None else Answer(*release, Outcome.UNKNOWN)
        self.report(EventKind.MESSAGE_LAPSING, lease, now, answer)
        self.forget(lease)

    def _worth_a_late_extension(self, lease: Lease, now: float) -> bool:
        self.note_expiry(lease, now)
        if may_be_saved(lease, now):
            return True
        # Nobody can tell any more whose it is: a late extension would not save the
        # message and might disturb its new owner.
        lease.standing = Standing.LOST
        if lease.state is State.HELD:
            self.report(EventKind.LEASE_LOST, lease, now)
        return False

    def _release_under_way(self, lease: Lease) -> tuple[Call, Entry] | None:
        if (call := self._agenda.call_of(lease)) is not None:
            for entry in call.entries:
                if entry.lease is lease and entry.action is Action.RELEASE:
                    return call, entry
        return None
