"""The keeper's end of the link: has a `ThreadKeeper` do what the worker says."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.current.board import LeaseBoard
from celery_sqs_heartbeat.keeper.keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.receipts import Receipt
from celery_sqs_heartbeat.leases.recent import CAPACITY
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.messages import event as event_message
from celery_sqs_heartbeat.link.messages import read_lease, read_receive, read_terms

logger = logging.getLogger(__name__)

#: Events that a worker always needs: they change what it holds, or are signals to its handlers.
NEEDED = frozenset(
    {
        EventKind.LEASE_EXPIRED,
        EventKind.LEASE_LOST,
        EventKind.LEASE_CAPPED,
        EventKind.MESSAGE_RELEASED,
        EventKind.MESSAGE_LAPSING,
    }
)


class NumberedLeases:
    """The leases of a keeper by the numbers that its worker gave them. A keeper's board.

    Args:
        board: Where the worker and its tasks read of them.
        send: Sends the worker a message.
    """

    def __init__(self, board: LeaseBoard, send: Callable[[Message], None]) -> None:
        self._board = board
        self._send = send
        self._leases: dict[int, Lease] = {}
        self._receives: dict[int, int] = {}
        #: By receipt handle; an event may be reported when its lease is over.
        self._numbers: OrderedDict[str, int] = OrderedDict()
        #: By number, the process that runs its task.
        self.pids: dict[int, int] = {}

    def lease(self, number: int) -> Lease | None:
        """Return the lease of a number; None where there is none any more."""
        return self._leases.get(number)

    def number(self, receipt_handle: str) -> int | None:
        """Return the number that a receipt handle has, or lately had."""
        return self._numbers.get(receipt_handle)

    def receives(self, number: int) -> int:
        """Return how many receives the worker has reported of a message."""
        return self._receives.get(number, 0)

    def expect(self, number: int, receives: int, place: int | None, receipt_handle: str) -> None:
        """Note the number of the lease that a receipt handle begins, or goes on with."""
        self._receives[number] = receives
        self._numbers[receipt_handle] = number
        if len(self._numbers) > CAPACITY:
            self._numbers.popitem(last=False)
        known = self._leases.get(number)
        first = known.handles[0] if known is not None else receipt_handle
        self._board.assign(first, place, receives)

    def show(self, lease: Lease) -> None:
        """Take in a lease that is new or has changed."""
        number = self._numbers.get(lease.receipt_handle)
        if number is not None:
            self._leases[number] = lease
        self._board.show(lease)

    def remove(self, lease: Lease) -> None:
        """Take in that the book has forgotten a lease, and tell the worker."""
        self._board.remove(lease)
        number = self._numbers.get(lease.receipt_handle)
        if number is not None and self._leases.pop(number, None) is not None:
            self.pids.pop(number, None)
            self._send(("over", number, self._receives.pop(number, 0)))


class KeeperEnd:
    """Does what the worker says, message by message.

    Args:
        leases: The board of `keeper`.
        wants_all: Whether the worker wants every event.
    """

    def __init__(
        self,
        keeper: ThreadKeeper,
        leases: NumberedLeases,
        send: Callable[[Message], None],
        *,
        wants_all: bool,
    ) -> None:
        self._keeper = keeper
        self._leases = leases
        self._send = send
        self._wants_all = wants_all

    def report(self, event: Event) -> None:
        """Tell the worker of an event, if it needs it. An observer of the keeper."""
        if self._wants_all or event.kind in NEEDED:
            number = self._leases.number(event.receipt_handle)
            self._send(event_message(number or 0, event))

    def take(self, message: list[Any]) -> bool:
        """Do what a message says; return False where it is none about leases.

        Raises:
            BrokenLink: It has not the fields that it should have.
        """
        try:
            return self._take(message)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenLink(f"the worker said something that can't be: {error}") from error

    def _take(self, message: list[Any]) -> bool:
        match message:
            case ["received", number, receives, place, receipt, receive, terms, *rest]:
                self._receive(number, receives, place, Receipt(receipt), receive, terms, rest)
            case ["started", number, pid]:
                self._leases.pids[number] = pid
                self._by_handle(number, self._keeper.note_start)
            case ["done", number]:
                self._by_handle(number, self._keeper.done)
            case ["release", number, delay, cause]:
                self._by_handle(number, lambda handle: self._keeper.release(handle, delay, cause))
            case ["drop", number]:
                self._by_handle(number, self._keeper.drop)
            case ["resume", number, receives, place, was_releasing, pid, *lease]:
                self._resume(number, receives, place, pid, read_lease(*lease), was_releasing)
            case _:
                return False
        return True

    def _receive(
        self,
        number: int,
        receives: int,
        place: int | None,
        receipt: Receipt,
        values: list[Any],
        terms: list[Any],
        rest: list[Any],
    ) -> None:
        task, task_id, max_receive_count, sent_time, first_received_time = rest
        receive = read_receive(values)
        if receipt is not Receipt.LAPSED:
            self._leases.expect(number, receives, place, receive.receipt_handle)
        self._keeper.take(
            receive,
            receipt,
            terms=read_terms(terms),
            task=task,
            task_id=task_id,
            max_receive_count=max_receive_count,
            sent_time=sent_time,
            first_received_time=first_received_time,
        )

    def _resume(
        self,
        number: int,
        receives: int,
        place: int | None,
        pid: int | None,
        lease: Lease,
        was_releasing: bool,
    ) -> None:
        self._leases.expect(number, receives, place, lease.handles[0])
        self._leases.expect(number, receives, place, lease.receipt_handle)
        if pid is not None:
            self._leases.pids[number] = pid
        self._keeper.resume(lease, was_releasing=was_releasing)

    def _by_handle(self, number: int, act: Callable[[str], bool]) -> None:
        lease = self._leases.lease(number)
        if lease is None or not act(lease.receipt_handle):
            # It is over: the worker must not wait for its end.
            self._send(("over", number, self._leases.receives(number) or 1 << 30))
