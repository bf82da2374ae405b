"""A worker, its keeper, and a link between them that delivers each message when the test says."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any

from celery_sqs_heartbeat.current.places import LeaseBoard
from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.message_sender import MessageSender
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.frames import Message, write
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import read_event
from celery_sqs_heartbeat.link.serving import KeeperEnd, NumberedLeases
from celery_sqs_heartbeat.testing import FakeClock

#: One row of the table. In a long run some leases have no place for a while.
PLACES = REACH


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
        self.given_up: list[Call] = []

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        self._note(call)
        self.out.append((call, settle))

    def give_up(self, call: Call) -> bool:
        self.given_up.append(call)
        return True

    def forget_given_up(self) -> None:
        """Leave the calls that were given up without an answer forever."""
        self.out = [each for each in self.out if each[0] not in self.given_up]

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def send(self, call: Call) -> Sequence[Outcome]:
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

    @property
    def waiting(self) -> int:
        return 0

    def post(self, message: Message) -> None:
        self.messages.append(json.loads(write(message)))

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        self.is_broken = True


class Elsewhere:
    """A keeper's process: the messages that it receives and sends, and its leases."""

    def __init__(
        self, table: Table, clock: FakeClock, jitter: float, note: Callable[[Call], None]
    ) -> None:
        self.inbox = Queue()
        self.outbox = Queue()
        self.calls = Calls(note)
        leases = NumberedLeases(LeaseBoard(table), self.outbox.post)
        self.keeper = ThreadKeeper(
            self.calls,
            clock=clock,
            jitter=lambda: jitter,
            dispatcher=self.calls,
            board=leases,
            observer=lambda event: self.end.report(event),
        )
        sender = MessageSender(self.keeper, lambda *args, **kwargs: "copy", lambda job: job())
        self.end = KeeperEnd(self.keeper, leases, self.outbox.post, sender, wants_all=False)

    def take(self, most: float = math.inf) -> None:
        """Handle the next messages."""
        with self.keeper.gathering():
            while self.inbox.messages and most > 0:
                most -= 1
                assert self.end.take(self.inbox.messages.popleft())


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
        self.worker = LinkedKeeper(self.holdings, clock=self.clock)
        self._jitter, self._note = jitter, note
        self.start()

    def start(self) -> None:
        """Start a keeper, which gets all leases of the worker."""
        self.elsewhere = Elsewhere(self.table, self.clock, self._jitter, self._note)
        self.worker.attach(self.elsewhere.inbox, ())  # type: ignore[arg-type]

    def die(self, heard: int) -> Elsewhere:
        """End the keeper. The worker receives only the first of the messages that it had sent."""
        self.hear(heard)
        self.worker.detach()
        return self.elsewhere

    def hear(self, most: float = math.inf) -> None:
        """Have the worker handle the next messages."""
        said = self.elsewhere.outbox.messages
        while said and most > 0:
            most -= 1
            match said.popleft():
                case ["over", int(number), int(receives), bool(is_deleted)]:
                    self.worker.end(number, receives, is_deleted=is_deleted)
                case ["event", int(number), list(values)]:
                    self.worker.note_event(number, read_event(values))
                case other:
                    raise AssertionError(other)

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
        return self.worker.receive(
            queue, message, terms=terms, hidden_for=hidden, sent_at=self.clock() - poll
        )
