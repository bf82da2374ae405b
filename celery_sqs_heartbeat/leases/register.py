"""The leases of a book: found by message or receipt handle, placed where they wait, reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.events import GOING_BACK, Answer, Entry, Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.message import GroupOrder
from celery_sqs_heartbeat.leases.policy import entry_for, may_be_saved, next_action
from celery_sqs_heartbeat.leases.received_as import RecentKeys, StaleCalls

#: Too frequent to be worth a wake-up: they are only recorded.
_NO_NEWS = frozenset({EventKind.MESSAGE_RECEIVED, EventKind.TASK_STARTED})


class Board(Protocol):
    """Called for every change of a lease, under the keeper's lock.

    It must be fast, raise nothing, and not change the lease.
    """

    def show(self, lease: Lease) -> None:
        """Show a lease that is new or has changed."""

    def remove(self, lease: Lease) -> None:
        """Remove a lease that the book has forgotten."""


class Register:
    """Holds leases, notes that they expire, and remembers which messages were finished.

    Args:
        board: Shows every change of a lease, if given.

    Attributes:
        agenda: Holds each lease that waits for a call.
        order: Holds each lease that is kept in the order of its message group.
        stale_calls: Knows the calls of each message, until it is deleted.
        finished: The messages whose task has succeeded.
        ending: How many leases wait for their delete or release to be confirmed.
        has_news: Whether `take_events` would return any event that is worth a wake-up.
    """

    def __init__(self, board: Board | None) -> None:
        self.agenda = Agenda()
        self.order = GroupOrder()
        self.stale_calls = StaleCalls()
        self.finished = RecentKeys[tuple[str, str]]()
        self.ending = 0
        self.has_news = False
        self._board = board
        self._by_key: dict[tuple[str, str], Lease] = {}
        self._by_handle: dict[str, Lease] = {}
        self._events: list[Event] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._by_key.values())

    def get(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle."""
        return self._by_handle.get(receipt_handle)

    def of_message(self, key: tuple[str, str]) -> Lease | None:
        """Return the lease on a message."""
        return self._by_key.get(key)

    def holds(self, lease: Lease) -> bool:
        """Return whether this lease object is still in the register."""
        return self._by_key.get(lease.key) is lease

    def add(self, lease: Lease) -> None:
        """Add a lease with its handles."""
        self._by_key[lease.key] = lease
        self.agenda.add(lease)
        self._by_handle.update(dict.fromkeys(lease.handles, lease))
        self.ending += lease.goal is not Goal.HOLD
        if lease.goal is Goal.DELETE:
            self.finished.add(lease.key)
        # A lease that was lost under the last keeper does not stop the messages after it. A lease
        # whose goal is release needs its place, because it is released after those behind it.
        if lease.has_place or lease.goal is Goal.RELEASE:
            self.order.add(lease)

    def add_handle(self, lease: Lease, receipt_handle: str) -> None:
        """Add a handle by which the lease is found."""
        lease.add_handle(receipt_handle)
        self._by_handle[receipt_handle] = lease

    def set_goal(self, lease: Lease, goal: Goal, now: float, *, due: float) -> None:
        """Set a lease's goal, with the first try at `due`. The caller schedules the lease."""
        self.ending += lease.goal is Goal.HOLD
        if goal is Goal.DELETE:
            self.finished.add(lease.key)
        self.agenda.end_hold(lease)
        lease.set_goal(goal, now, due=due)

    def schedule(self, lease: Lease) -> None:
        """Place the lease by its next action, after any change of it."""
        self._place(lease)
        self.show(lease)
        self._place_first(lease)

    def show(self, lease: Lease) -> None:
        """Show the lease's current state on the board."""
        if self._board is not None:
            self._board.show(lease)

    def forget(self, lease: Lease) -> None:
        """Remove every trace of a lease. An answer that is still to come is then ignored."""
        del self._by_key[lease.key]
        self.agenda.remove(lease)
        for handle in lease.handles:
            self._by_handle.pop(handle, None)
        self.ending -= lease.goal is not Goal.HOLD
        if lease.goal is Goal.DELETE:
            self.stale_calls.forget(lease.key)
        self.order.end(lease, is_deleted=lease.is_deleted)
        self._place_first(lease)
        if self._board is not None:
            self._board.remove(lease)

    def note_expiry(self, lease: Lease, now: float) -> None:
        """Report, once, that our clock has passed the expiry of a lease.

        Not if its task has ended: no one needs the lease any more.
        """
        if now >= lease.expires_at and lease.status in (LeaseStatus.OWNED, LeaseStatus.REFUSED):
            lease.status = LeaseStatus.EXPIRED
            # Restart the pauses: a prompt try may still save the lease. After it they only double.
            lease.attempts = min(lease.attempts, 1)
            if lease.goal is Goal.HOLD:
                self.report(EventKind.LEASE_EXPIRED, lease, now)

    def expire_if_due(self, lease: Lease, now: float) -> bool:
        """Forget a lease whose goal is release, if its message may be someone else's.

        Returns whether it did.
        """
        is_ours = lease.is_exclusive and now < lease.expires_at
        if lease.goal is not Goal.RELEASE or (
            is_ours and lease.status not in (LeaseStatus.LOST, LeaseStatus.REFUSED)
        ):
            return False
        self.lapse(lease, now)
        return True

    def lapse(self, lease: Lease, now: float) -> None:
        """Report that a message becomes visible without a release, and forget its lease.

        If a release is in flight, its outcome is reported as unknown.
        """
        release = self.agenda.release_of(lease)
        answer = None if release is None else Answer(*release, Outcome.UNKNOWN)
        self.report(EventKind.MESSAGE_LAPSING, lease, now, answer)
        self.forget(lease)

    def due_entry(self, lease: Lease, now: float) -> Entry | None:
        """Return the entry for a lease that is due; None if there is no call to make."""
        if self.expire_if_due(lease, now):
            return None
        if (
            now >= lease.expires_at
            and next_action(lease) is Action.EXTEND
            and not self._is_worth_a_late_extension(lease, now)
        ):
            self.schedule(lease)
            return None
        entry = entry_for(lease, now)
        if entry is None:
            lease.status = LeaseStatus.CAPPED
            self.report(EventKind.LEASE_CAPPED, lease, now)
            self.schedule(lease)
        return entry

    def report(
        self,
        kind: EventKind,
        lease: Lease,
        now: float,
        answer: Answer | None = None,
        *,
        cause: str = "",
    ) -> None:
        """Add an event of a lease.

        Args:
            answer: The answer of SQS that caused it, if any.
            cause: The reason in a word or two, for the log, the metrics and the journal.
        """
        stops_group = kind in GOING_BACK and self.order.is_stopped_by(lease)
        self._events.append(Event.of(kind, lease, now, answer, cause, stops_group=stops_group))
        self.has_news = self.has_news or kind not in _NO_NEWS
        self.order.note(kind, lease)

    def take_events(self) -> list[Event]:
        """Return the events since the last call of this method."""
        events, self._events, self.has_news = self._events, [], False
        return events

    def _place(self, lease: Lease) -> None:
        self.agenda.put(lease, waits_for_others=self._waits_for_others(lease))

    def _place_first(self, lease: Lease) -> None:
        """Place the first lease of a lease's group again: it may no longer wait for others."""
        first = self.order.first(lease)
        if first is not None and first is not lease and first.goal is Goal.RELEASE:
            self._place(first)

    def _waits_for_others(self, lease: Lease) -> bool:
        """Return whether a release must wait for the releases of the messages behind it.

        The first message of a group is released last. While it is hidden, SQS delivers none of
        the others, in whatever order they are released.
        """
        if lease.goal is not Goal.RELEASE or self.order.first(lease) is not lease:
            return False
        return any(each.goal is Goal.RELEASE for each in self.order.behind(lease))

    def _is_worth_a_late_extension(self, lease: Lease, now: float) -> bool:
        self.note_expiry(lease, now)
        if may_be_saved(lease, now):
            return True
        # Its owner is unknown by now. A late extension would not save the lease, and might
        # disturb a new owner.
        lease.status = LeaseStatus.LOST
        if lease.goal is Goal.HOLD:
            self.report(EventKind.LEASE_LOST, lease, now)
        return False
