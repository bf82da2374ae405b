"""The leases of a keeper, by the numbers that identify them on the link."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from celery_sqs_heartbeat.current.lease_board import LeaseBoard
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.recent import CAPACITY
from celery_sqs_heartbeat.link.frames import Message


class NumberedLeases:
    """The leases of a keeper, by the numbers that its worker gave them. The keeper's board.

    Args:
        board: The board in shared memory that the worker and its tasks read.
        send: Sends the worker a message.
    """

    def __init__(self, board: LeaseBoard, send: Callable[[Message], None]) -> None:
        self._board = board
        self._send = send
        self._leases: dict[int, Lease] = {}
        self._receives: dict[int, int] = {}
        self._by_message: dict[tuple[str, str], int] = {}
        self._by_handle: dict[str, int] = {}
        #: An event may be reported after its lease has ended.
        self._over_by_handle: OrderedDict[str, int] = OrderedDict()
        #: By number: the process that runs the task.
        self.pids: dict[int, int] = {}

    def lease(self, number: int) -> Lease | None:
        """Return the lease of a number; None if it has ended."""
        return self._leases.get(number)

    def number(self, receipt_handle: str) -> int | None:
        """Return the number that a receipt handle has, or recently had."""
        number = self._by_handle.get(receipt_handle)
        return self._over_by_handle.get(receipt_handle) if number is None else number

    def under_another(self, number: int, message: tuple[str, str]) -> Lease | None:
        """Return the message's lease if it has one under a number other than `number`."""
        other = self._by_message.get(message, number)
        return None if other == number else self._leases.get(other)

    def expect(self, number: int, receives: int, place: int | None, *handles: str) -> None:
        """Note the number of a lease that is about to begin or to get a new receipt handle.

        Args:
            number: The lease's number.
            receives: How many receives of the message the worker has reported.
            place: The lease's place in the board; None if it has no place.
            handles: All new receipt handles, in their order.
        """
        self._receives[number] = receives
        self._by_handle.update(dict.fromkeys(handles, number))
        known = self._leases.get(number)
        first = known.handles[0] if known is not None else handles[0]
        self._board.assign(first, place, receives)

    def show(self, lease: Lease) -> None:
        """Note a lease that is new or has changed."""
        number = self._by_handle.get(lease.receipt_handle)
        if number is not None:
            self._leases[number] = lease
            self._by_message[lease.key] = number
        self._board.show(lease)

    def remove(self, lease: Lease) -> None:
        """Note that the book has forgotten a lease, and report it to the worker."""
        self._board.remove(lease)
        number = self._by_handle.get(lease.receipt_handle)
        if number is None:
            return
        for handle in lease.handles:
            self._by_handle.pop(handle, None)
            self._over_by_handle[handle] = number
        while len(self._over_by_handle) > CAPACITY:
            self._over_by_handle.popitem(last=False)
        self._by_message.pop(lease.key, None)
        # A lease that ended while it was resumed was never shown.
        self._leases.pop(number, None)
        self.pids.pop(number, None)
        self._send(("over", number, self._receives.pop(number, 0), lease.is_deleted))
