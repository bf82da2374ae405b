"""The keeper's end of the link: passes the worker's messages to a `ThreadKeeper`.

Messages name a lease by the number that the worker gave it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.current.places import LeaseBoard
from celery_sqs_heartbeat.keeper.message_sender import MessageSender
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import WORKER_DIED, Event, EventKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.leases.recent import CAPACITY
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.liveness import TICK_SECONDS
from celery_sqs_heartbeat.link.messages import event as event_message
from celery_sqs_heartbeat.link.messages import read_lease, read_receive, read_terms
from celery_sqs_heartbeat.link.polls import ReportedPolls
from celery_sqs_heartbeat.link.watching import WorkerProcesses

logger = logging.getLogger(__name__)

#: Kinds of messages about leases.
_KINDS = frozenset({"received", "started", "done", "release", "send-again", "drop", "resume"})
#: How many messages are handled before the keeper may do anything else. Each takes about 50 us.
_BATCH = 200
#: Events that a worker always needs: they change the messages it holds, or call its handlers.
NEEDED = frozenset(
    {
        EventKind.LEASE_EXPIRED,
        EventKind.LEASE_LOST,
        EventKind.LEASE_CAPPED,
        EventKind.LEASE_CAP_NEAR,
        EventKind.MESSAGE_RELEASED,
        EventKind.MESSAGE_LAPSING,
    }
)


def is_about_leases(message: list[Any]) -> bool:
    """Return whether `KeeperEnd` handles a message."""
    return message[0] in _KINDS


class KeeperEnd:
    """Handles the worker's messages about leases.

    Args:
        keeper: The keeper that owns the leases.
        leases: The board of `keeper`.
        send: Sends the worker a message.
        sender: Sends messages to SQS again.
        wants_all: Whether the worker wants every event.
    """

    def __init__(
        self,
        keeper: ThreadKeeper,
        leases: NumberedLeases,
        send: Callable[[Message], None],
        sender: MessageSender,
        *,
        wants_all: bool,
    ) -> None:
        self._keeper = keeper
        self._leases = leases
        self._send = send
        self._sender = sender
        self._wants_all = wants_all

    def report(self, event: Event) -> None:
        """Report an event to the worker, if it needs it. An observer of the keeper."""
        if self._wants_all or event.kind in NEEDED:
            number = self._leases.number(event.receipt_handle)
            self._send(event_message(number or 0, event))

    def take_all(self, messages: Iterable[list[Any]]) -> None:
        """Handle messages about leases. The keeper looks for due calls only once per batch.

        Raises:
            BrokenLink: A message has an unknown kind, or the wrong fields.
        """
        waiting = iter(messages)
        while batch := list(islice(waiting, _BATCH)):
            with self._keeper.gathering():
                for message in batch:
                    if not self.take(message):
                        raise BrokenLink(f"the worker sent an unknown message: {message[0]!r}")

    def take(self, message: list[Any]) -> bool:
        """Handle a message. Return False if it is not about leases.

        Raises:
            BrokenLink: It has the wrong fields.
        """
        try:
            return self._take(message)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenLink(f"the worker sent an invalid message: {error}") from error

    def held(self) -> list[Lease]:
        """Return the leases on messages that the worker has neither acked nor released."""
        return [lease for lease in self._keeper.leases() if lease.goal is Goal.HOLD]

    def release_all_held(self, processes: WorkerProcesses, polls: ReportedPolls) -> None:
        """Release a dead worker's messages, each as soon as no process can still run its task.

        If the worker had a long poll open on the queue, the release is delayed until that poll
        ends. Otherwise SQS would deliver the message to the poll, whose answer no one reads.
        """
        held = self.held()
        logger.warning(
            "sqs-heartbeat: the worker is gone: releasing %s that it held",
            counted(len(held), "message"),
        )
        processes.kill_pool()
        while held:
            for lease in held:
                number = self._leases.number(lease.receipt_handle) or 0
                if not processes.may_run(self._leases.pids.get(number)):
                    delay = polls.left(lease.queue_url)
                    self._keeper.release(lease.receipt_handle, delay, WORKER_DIED)
            held = self.held()
            if held:
                time.sleep(TICK_SECONDS)

    def _take(self, message: list[Any]) -> bool:
        match message:
            case ["received", number, receives, place, receipt, receive, terms, is_certain]:
                self._receive(
                    number,
                    receives,
                    place,
                    ReceivedAs(receipt),
                    read_receive(receive),
                    read_terms(terms),
                    is_certain,
                )
            case ["started", number, receives, at, pid]:
                if self._by_handle(
                    number, receives, lambda handle: self._keeper.note_start(handle, at=at)
                ):
                    self._leases.pids[number] = pid
            case ["done", number, receives]:
                self._by_handle(number, receives, self._keeper.done)
            case ["release", number, receives, delay, cause]:
                self._by_handle(
                    number, receives, lambda handle: self._keeper.release(handle, delay, cause)
                )
            case ["send-again", number, receives, delay, cause, dict(content)]:
                self._by_handle(
                    number,
                    receives,
                    lambda handle: self._sender.send_again(handle, content, delay, cause),
                )
            case ["drop", number, receives, cause]:
                self._by_handle(
                    number, receives, lambda handle: self._keeper.let_expire(handle, cause)
                )
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
        receipt: ReceivedAs,
        receive: Receive,
        terms: LeaseTerms,
        is_certain: bool,
    ) -> None:
        if receipt is not ReceivedAs.LAPSED:
            self._end_before(number, receive.key)
            self._leases.expect(number, receives, place, receive.receipt_handle)
        self._keeper.take(receive, receipt, terms=terms, is_certain=is_certain)

    def _end_before(self, number: int, message: tuple[str, str]) -> None:
        """End a lease if the worker has meanwhile begun another lease on the same message.

        If an ack followed a release, this keeper may be deleting the message. The worker did not
        know that, and has it deleted under the new number.
        """
        lease = self._leases.under_another(number, message)
        if lease is not None and lease.goal is Goal.DELETE:
            self._keeper.let_expire(lease.receipt_handle)

    def _resume(
        self,
        number: int,
        receives: int,
        place: int | None,
        pid: int | None,
        lease: Lease,
        was_releasing: bool,
    ) -> None:
        self._leases.expect(number, receives, place, *lease.handles)
        if pid is not None:
            self._leases.pids[number] = pid
        self._keeper.resume(lease, was_releasing=was_releasing)

    def _by_handle(self, number: int, receives: int, act: Callable[[str], bool]) -> bool:
        lease = self._leases.lease(number)
        if lease is not None and act(lease.receipt_handle):
            return True
        # The lease has ended already: the worker must not wait for its end.
        self._send(("over", number, receives, False))
        return False


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
