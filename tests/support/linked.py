"""A worker, its keeper, and a link between them that delivers each message when the test says."""

from __future__ import annotations

import json
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from mmap import mmap
from typing import Any
from weakref import finalize

from celery_sqs_heartbeat.current.table import REACH, LeaseBoard, Table
from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Call, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, Outlet, delivery_sockets
from celery_sqs_heartbeat.link.frames import Message, write
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import read_event
from celery_sqs_heartbeat.link.serving import KeeperEnd, LinkedLeases, is_about_leases
from celery_sqs_heartbeat.link.watching import wait_readable
from celery_sqs_heartbeat.receiving.reception import MessageSender
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.waiting import wait_until

#: One row of the table. In a long run some leases have no place for a while.
PLACES = REACH
#: The number of the worker's only channel.
CHANNEL = 1
#: What a new keeper hears before it receives.
_FIRST = frozenset({"finished", "unanswered", "resume"})


def message_of(message_id: str, handle: str, count: int) -> dict[str, Any]:
    return {
        "MessageId": message_id,
        "ReceiptHandle": handle,
        "Attributes": {"ApproximateReceiveCount": str(count)},
    }


class Calls:
    """Makes no call. Keeps each call until the test answers it."""

    def __init__(self, note: Callable[[Call], None] = lambda call: None) -> None:
        self._note = note
        self.out: list[tuple[Call, ApplyResults]] = []

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        self._note(call)
        self.out.append((call, settle))

    def give_up(self, call: Call) -> bool:
        del call
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def send(self, call: Call, may_send: object) -> Sequence[Outcome]:
        raise AssertionError("calls are dispatched")

    def answer(self, index: int, outcomes: Sequence[Outcome]) -> Call:
        """Answer a call. The outcomes are repeated until each entry has one."""
        call, settle = self.out.pop(index)
        count = len(call.entries)
        settle((list(outcomes) * count)[:count])
        return call


class Queue:
    """A wire whose other end eventually takes all messages."""

    def __init__(self) -> None:
        self.messages: deque[list[Any]] = deque()
        self.is_broken = False

    def post(self, message: Message) -> None:
        self.messages.append(json.loads(write(message)))

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        self.is_broken = True


def take_report(worker: LinkedKeeper, said: list[Any]) -> None:
    """Have a worker take what its keeper reports."""
    match said:
        case ["event", list(values)]:
            worker.note_event(read_event(values))
        case _:
            assert worker.take(said), said


def close_outlet(outlet: Outlet) -> None:
    """Close a keeper's end, once no thread uses its socket."""
    outlet.close()
    wait_until(lambda: not outlet._has_thread)
    outlet._socket.close()


class NoReception:
    """Receives nothing, and has no open polls."""

    def __init__(self, keeper: ThreadKeeper) -> None:
        self._keeper = keeper
        self._sender = MessageSender(keeper, lambda *args, **kwargs: "copy", lambda job: job())

    def take_turns(self) -> None:
        """Do nothing: no message waits."""

    def release(self, handle: str, delay: float, cause: str, content: Any = None) -> bool:
        if content is not None:
            return self._sender.send_again(handle, content, delay, cause)
        return self._keeper.release(handle, delay, cause)


class Elsewhere:
    """A keeper's process: the messages that it receives and sends, and its leases.

    Args:
        deliveries: Its end of the deliveries; None for one that no one reads.
        number: Its number among its worker's keepers.

    Attributes:
        waiting: What it has received and not handed over.
        limit: How many messages it may hand over in all.
        handed_over: How many it has handed over.
    """

    def __init__(
        self,
        table: Table,
        clock: FakeClock,
        jitter: float,
        note: Callable[[Call], None],
        *,
        deliveries: socket.socket | None = None,
        number: int = 1,
    ) -> None:
        self.inbox = Queue()
        self.outbox = Queue()
        self.calls = Calls(note)
        self.waiting: list[Arrived] = []
        self.limit = self.handed_over = 0
        if deliveries is None:
            read_by_none, deliveries = delivery_sockets()
            finalize(self, read_by_none.close)
            own = deliveries.detach()
        else:
            own = os.dup(deliveries.fileno())
        self.outlet = Outlet(own, number)
        finalize(self, close_outlet, self.outlet)
        self.leases = LinkedLeases(LeaseBoard(table), self.outlet, self.outbox.post)
        self.keeper = ThreadKeeper(
            self.calls,
            clock=clock,
            jitter=lambda: jitter,
            dispatcher=self.calls,
            board=self.leases,
            observers=[lambda event: self.end.report(event)],
        )
        self.end = KeeperEnd(
            self.keeper,
            self.leases,
            self.outbox.post,
            NoReception(self.keeper),  # type: ignore[arg-type]
            wants_all=False,
        )

    def take(self, most: float = math.inf) -> None:
        """Handle the next messages."""
        while self.inbox.messages and most > 0:
            most -= 1
            message = self.inbox.messages.popleft()
            with self.keeper.gathering() if is_about_leases(message) else nullcontext():
                assert self.end.take(message)

    def take_leases(self) -> None:
        """Handle what a new keeper hears before it may receive."""
        while not _FIRST.isdisjoint(each[0] for each in self.inbox.messages):
            self.take(1)

    def receive(
        self, queue: str, message: dict[str, Any], terms: LeaseTerms, hidden: int, poll: float
    ) -> ReceivedAs:
        """Receive a message. A new one waits here until it is handed over."""
        self.take_leases()
        receipt = self.keeper.receive(
            queue,
            message,
            terms=terms,
            hidden_for=hidden,
            sent_at=self.keeper.now() - poll,
        )
        if receipt is ReceivedAs.NEW:
            lease = self.keeper.find(message["ReceiptHandle"])
            assert lease is not None
            self.waiting.append(Arrived(queue="q", message=message, lease=lease))
        return receipt

    def keep(self) -> None:
        """Tell the worker the handles of what waits here."""
        self.leases.keep(self.waiting)

    def deliver(self, most: int | None = None) -> list[Arrived]:
        """Hand the next messages over. Return them."""
        given, self.waiting = self.waiting[:most], self.waiting[len(self.waiting[:most]) :]
        self.handed_over += len(given) - self.leases.deliver(CHANNEL, given)
        return given

    def read_rooms(self) -> None:
        """Read all that the worker has said about the room for messages."""
        while wait_readable([self.outlet._socket.fileno()], 0):
            assert self.outlet.read_rooms(self._allow)

    def _allow(self, channel: int, limit: int, prefetch_count: int) -> None:
        assert (channel, prefetch_count >= 0) == (CHANNEL, True)
        self.limit = limit


class Linked:
    """A worker with its keeper, which may be replaced."""

    def __init__(
        self,
        jitter: float,
        note: Callable[[Call], None] = lambda call: None,
        clock: FakeClock | None = None,
    ) -> None:
        self.clock = clock or FakeClock(1000.0)
        self.table = Table(mmap(-1, Table.size_for(PLACES)))
        # The keeper is ready.
        self.table.tick = 1.0
        self.holdings = HeldMessages(self.table)
        ours, self._deliveries = delivery_sockets()
        inlet = Inlet(ours.detach())
        finalize(self, inlet.close)
        finalize(self, self._deliveries.close)
        self.worker = LinkedKeeper(self.holdings, inlet, clock=self.clock)
        self._jitter, self._note = jitter, note
        self._keepers = 0
        self.start()

    def start(self) -> None:
        """Start a keeper, which gets all leases of the worker."""
        self._keepers += 1
        self.elsewhere = Elsewhere(
            self.table,
            self.clock,
            self._jitter,
            self._note,
            deliveries=self._deliveries,
            number=self._keepers,
        )
        self.worker.attach(self.elsewhere.inbox, ())  # type: ignore[arg-type]

    def die(self, heard: int) -> Elsewhere:
        """End the keeper. The worker receives only the first of the messages that it had sent."""
        self.hear(heard)
        self.worker.detach()
        return self.elsewhere

    def hear(self, most: float = math.inf) -> None:
        """Have the worker handle what was handed over, and the next messages."""
        self.worker.pull()
        said = self.elsewhere.outbox.messages
        while said and most > 0:
            most -= 1
            take_report(self.worker, said.popleft())

    def deliver(self) -> None:
        """Have both ends handle all messages."""
        self.elsewhere.take()
        self.hear()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way between the two."""
        return not (self.elsewhere.inbox.messages or self.elsewhere.outbox.messages)

    def receive(
        self, queue: str, message: dict[str, Any], terms: LeaseTerms, hidden: int, poll: float
    ) -> ReceivedAs:
        """Have the keeper receive a message, and the worker get it if it is new."""
        receipt = self.elsewhere.receive(queue, message, terms, hidden, poll)
        self.elsewhere.deliver()
        self.worker.pull()
        return receipt
