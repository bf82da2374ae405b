"""The leases of a book, found by message or receipt handle, and placed where they wait."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.group_order import GroupOrder
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.leases.stale_calls import StaleCalls


class Register:
    """Holds leases, and remembers which messages were finished or given up.

    Args:
        agenda: Holds each lease that waits for a call.
        stale_calls: Knows the calls of each message, until it is deleted.
        board: Shows every change of a lease, if given.
        order: Holds each lease that is kept in the order of its message group.

    Attributes:
        finished: The messages whose task has succeeded.
        disowned: The handles of messages that were given up.
    """

    def __init__(
        self, *, agenda: Agenda, stale_calls: StaleCalls, board: Board | None, order: GroupOrder
    ) -> None:
        self._agenda = agenda
        self._stale_calls = stale_calls
        self._board = board
        self._order = order
        self._by_key: dict[tuple[str, str], Lease] = {}
        self._by_handle: dict[str, Lease] = {}
        self._ending = 0
        self.finished = RecentKeys[tuple[str, str]]()
        self.disowned = RecentKeys[str]()

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

    @property
    def ending(self) -> int:
        """How many leases wait for their delete or release to be confirmed."""
        return self._ending

    def add(self, lease: Lease) -> None:
        """Add a lease with its handles."""
        self._by_key[lease.key] = lease
        self._agenda.add(lease)
        self._by_handle.update(dict.fromkeys(lease.handles, lease))
        if lease.goal is not Goal.HOLD:
            self._ending += 1
        if lease.goal is Goal.DELETE:
            self.finished.add(lease.key)
        # A lease that was lost under the last keeper does not stop the messages after it. A lease
        # whose goal is release needs its place, because it is released after those behind it.
        if lease.has_place or lease.goal is Goal.RELEASE:
            self._order.add(lease)

    def place_in_group(self, lease: Lease) -> None:
        """Give a lease its place in its group. It loses the place when it expires."""
        self._order.add(lease)

    def add_handle(self, lease: Lease, receipt_handle: str) -> None:
        """Add a handle by which the lease is found."""
        lease.add_handle(receipt_handle)
        self._by_handle[receipt_handle] = lease

    def set_goal(self, lease: Lease, goal: Goal, now: float, *, due: float) -> None:
        """Set a lease's goal, with the first try at `due`. The caller schedules the lease."""
        if lease.goal is Goal.HOLD:
            self._ending += 1
        if goal is Goal.DELETE:
            self.finished.add(lease.key)
        self._agenda.end_hold(lease)
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
        self._agenda.remove(lease)
        for handle in lease.handles:
            self._by_handle.pop(handle, None)
        self._ending -= lease.goal is not Goal.HOLD
        if lease.goal is Goal.DELETE:
            self._stale_calls.forget(lease.key)
        self._order.end(lease, is_deleted=lease.is_deleted)
        self._place_first(lease)
        if self._board is not None:
            self._board.remove(lease)

    def _place(self, lease: Lease) -> None:
        self._agenda.put(lease, waits_for_others=self._waits_for_others(lease))

    def _place_first(self, lease: Lease) -> None:
        """Place the first lease of a lease's group again: it may no longer wait for others."""
        first = self._order.first(lease)
        if first is not None and first is not lease and first.goal is Goal.RELEASE:
            self._place(first)

    def _waits_for_others(self, lease: Lease) -> bool:
        """Return whether a release must wait for the releases of the messages behind it.

        The first message of a group is released last. While it is hidden, SQS delivers none of
        the others, in whatever order they are released.
        """
        if lease.goal is not Goal.RELEASE or self._order.first(lease) is not lease:
            return False
        return any(each.goal is Goal.RELEASE for each in self._order.behind(lease))
