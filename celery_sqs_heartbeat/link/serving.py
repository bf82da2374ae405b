"""The keeper's end of the link: receives for the worker, and does what the worker says.

Messages name a lease by the number that its first keeper gave it.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.current.table import LeaseBoard
from celery_sqs_heartbeat.keeper.message_sender import MessageSender
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import WORKER_DIED, Event, EventKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.recent import CAPACITY
from celery_sqs_heartbeat.link.deliveries import Outlet
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.liveness import TICK_SECONDS
from celery_sqs_heartbeat.link.messages import again, lease_fields, read_lease, read_queue
from celery_sqs_heartbeat.link.messages import event as event_message
from celery_sqs_heartbeat.link.watching import WorkerProcesses
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived
from celery_sqs_heartbeat.receiving.reception import Reception

logger = logging.getLogger(__name__)

#: Kinds of messages about leases.
_KINDS = frozenset({"started", "done", "release", "drop", "finished", "unanswered", "resume"})
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


class HandOver:
    """Hands messages over to the worker.

    Args:
        leases: Knows the number of each lease.
        outlet: Takes the messages.
        send: Sends the worker a message over the link.
    """

    def __init__(
        self, leases: NumberedLeases, outlet: Outlet, send: Callable[[Message], object]
    ) -> None:
        self._leases = leases
        self._outlet = outlet
        self._send = send

    def deliver(self, channel: int, messages: list[Arrived]) -> int:
        """Hand messages over. Return how many of them have ended by now, and were not."""
        headed: list[tuple[Message, Mapping[str, Any]]] = [
            ((channel, each.queue.name, number, *lease_fields(each.lease)), each.message)
            for each in messages
            if (number := self._leases.live_number(each.handle)) is not None
        ]
        if headed and not self._outlet.send(headed):
            self.keep(messages)
        return len(messages) - len(headed)

    def keep(self, messages: list[Arrived]) -> None:
        """Have the worker know the handles of messages that would be lost with this process."""
        for each in messages:
            number = self._leases.live_number(each.handle)
            if number is not None:
                self._send(("kept", number, lease_fields(each.lease)))


def take(reception: Reception, message: list[Any]) -> bool:
    """Handle a message of the worker about receiving. Return False if it is about anything else."""
    match message:
        case ["consume", int(channel), list(queues)]:
            reception.consume(channel, map(read_queue, queues))
        case ["cancel", int(channel), str(queue)]:
            reception.cancel(channel, queue)
        case ["close", int(channel)]:
            reception.close(channel)
        case ["end"]:
            reception.end()
        case _:
            return False
    return True


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
        poll_left: Returns for how long a release must hide a message from our own open polls, in
            seconds.
        wants_all: Whether the worker wants every event.
    """

    def __init__(
        self,
        keeper: ThreadKeeper,
        leases: NumberedLeases,
        send: Callable[[Message], None],
        sender: MessageSender,
        *,
        poll_left: Callable[[Lease], float],
        wants_all: bool,
    ) -> None:
        self._keeper = keeper
        self._leases = leases
        self._send = send
        self._sender = sender
        self._poll_left = poll_left
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
        while batch := list(itertools.islice(waiting, _BATCH)):
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

    def release_all_held(self, processes: WorkerProcesses) -> None:
        """Release a dead worker's messages, each as soon as no process can still run its task.

        Polls that are still open are read to their end, and what they bring is released. So a
        message is released at once, unless another receive could make it a dead letter.
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
                    self._keeper.release(lease.receipt_handle, self._poll_left(lease), WORKER_DIED)
            held = self.held()
            if held:
                time.sleep(TICK_SECONDS)

    def _take(self, message: list[Any]) -> bool:
        match message:
            case ["started", number, at, pid]:
                if self._by_handle(number, lambda handle: self._keeper.note_start(handle, at=at)):
                    self._leases.pids[number] = pid
            case ["done", number]:
                self._by_handle(number, self._keeper.done)
            case ["release", number, delay, cause, *content]:
                self._by_handle(
                    number, lambda handle: self._release(handle, delay, cause, *content)
                )
            case ["drop", number, cause]:
                self._by_handle(number, lambda handle: self._keeper.let_expire(handle, cause))
            case ["finished", list(keys)]:
                self._keeper.remember(finished=[(url, message_id) for url, message_id in keys])
            case ["unanswered", list(releases)]:
                self._keeper.remember(
                    releases=[((url, message_id), handle) for (url, message_id), handle in releases]
                )
            case ["resume", number, was_releasing, pid, goal, status, list(fields)]:
                lease = read_lease(fields)
                lease.goal, lease.status = Goal(goal), LeaseStatus(status)
                self._leases.expect(number, *lease.handles)
                if pid is not None:
                    self._leases.pids[number] = pid
                self._keeper.resume(lease, was_releasing=was_releasing)
            case _:
                return False
        return True

    def _release(
        self,
        receipt_handle: str,
        delay: float,
        cause: str,
        content: Mapping[str, Any] | None = None,
    ) -> bool:
        """Release a message, as soon as no poll of an ended consumer could receive it.

        Its answer would be released, too. But the message would have used up a receive, and after
        `maxReceiveCount` of them SQS moves it to the dead-letter queue.

        Args:
            content: The message's content, if it must be sent again instead.
        """
        lease = self._keeper.find(receipt_handle)
        delay = max(delay, self._poll_left(lease) if lease is not None else 0.0)
        if content is not None:
            return self._sender.send_again(receipt_handle, content, delay, cause)
        return self._keeper.release(receipt_handle, delay, cause)

    def _by_handle(self, number: int, act: Callable[[str], bool]) -> bool:
        lease = self._leases.lease(number)
        if lease is not None and act(lease.receipt_handle):
            return True
        # The lease has ended already: the worker must not wait for its end.
        self._send(("over", number))
        return False


class NumberedLeases:
    """The leases of a keeper, and their numbers. The keeper's board.

    Args:
        board: The board in shared memory that the worker and its tasks read.
        send: Sends the worker a message.
        first: The number of the first new lease. No lease of an earlier keeper has one so high.
    """

    def __init__(self, board: LeaseBoard, send: Callable[[Message], None], first: int = 1) -> None:
        self._board = board
        self._send = send
        self._first = first
        self._numbers = itertools.count(first)
        self._leases: dict[int, Lease] = {}
        self._by_handle: dict[str, int] = {}
        #: An event may be reported after its lease has ended.
        self._over_by_handle: OrderedDict[str, int] = OrderedDict()
        #: By number: the process that runs the task.
        self.pids: dict[int, int] = {}

    def lease(self, number: int) -> Lease | None:
        """Return the lease of a number; None if it has ended."""
        return self._leases.get(number)

    def live_number(self, receipt_handle: str) -> int | None:
        """Return the number of the lease that has a receipt handle; None if it has ended."""
        return self._by_handle.get(receipt_handle)

    def number(self, receipt_handle: str) -> int | None:
        """Return the number that a receipt handle has, or recently had."""
        number = self._by_handle.get(receipt_handle)
        return self._over_by_handle.get(receipt_handle) if number is None else number

    def expect(self, number: int, *handles: str) -> None:
        """Note the number that a lease had with an earlier keeper."""
        self._by_handle.update(dict.fromkeys(handles, number))

    def show(self, lease: Lease) -> None:
        """Note a lease that is new or has changed."""
        number = self._by_handle.get(lease.receipt_handle)
        if number is None:
            number = self._by_handle.get(lease.handles[0])
            if number is None:
                number = next(self._numbers)
            else:
                self._send(again(number, lease))
            self._by_handle[lease.receipt_handle] = number
        is_new = number not in self._leases
        self._leases[number] = lease
        self._board.show(lease)
        if is_new and number >= self._first:
            # A keeper receives once it has the leases of the last one.
            self._board.note_all_shown()

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
        # A lease that ended while it was resumed was never shown.
        self._leases.pop(number, None)
        self.pids.pop(number, None)
        self._send(("over", number))
