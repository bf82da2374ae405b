"""Workers on one FIFO queue: the messages that they hold, run and lose, on the test's clock."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from celery_sqs_heartbeat.leases.calls import Call, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.link.held_messages import HandedOver
from celery_sqs_heartbeat.link.watching import wait_readable
from celery_sqs_heartbeat.receiving.group_waitlist import GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import Intake
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.queue import QueueOptions
from tests.model.linked import Elsewhere, Linked

TIMEOUT = 30
TERMS = replace(LeaseTerms.of(TIMEOUT), in_order=True)
#: More room than there are messages.
PLENTY = 1 << 30


@dataclass(frozen=True)
class Step:
    """A message's place. The number counts the messages of its group."""

    group: str
    number: int


class FifoQueue:
    """A simulated FIFO queue, and the truth about its messages."""

    def __init__(self, clock: FakeClock, max_receive_count: int | None = None) -> None:
        self.clock = clock
        self.sqs = SimulatedSqs(clock)
        dead = self.sqs.new_queue("dead.fifo")
        self.queue = self.sqs.new_queue(
            "orders.fifo",
            QueueOptions(
                visibility_timeout=TIMEOUT,
                max_receive_count=max_receive_count,
                dead_letters=dead if max_receive_count else None,
            ),
        )
        self.dead = dead
        self.steps: dict[str, Step] = {}
        self.succeeded: list[Step] = []

    def send(self, group: str) -> None:
        number = sum(step.group == group for step in self.steps.values())
        answer = self.sqs.send_message(
            QueueUrl=self.queue.url,
            MessageBody="{}",
            MessageGroupId=group,
            MessageDeduplicationId=f"{group}-{number}",
        )
        self.steps[answer["MessageId"]] = Step(group, number)

    def receive(self, count: int) -> list[dict[str, Any]]:
        answer = self.sqs.receive_message(
            QueueUrl=self.queue.url,
            MaxNumberOfMessages=count,
            VisibilityTimeout=TIMEOUT,
            MessageSystemAttributeNames=["All"],
        )
        return list(answer.get("Messages", []))

    def message(self, message_id: str) -> SimulatedMessage | None:
        """Return a message if it is still in the queue. A dead letter is not."""
        return self.queue.messages.get(message_id)

    def ahead(self, message_id: str) -> list[Step]:
        """Return the steps ahead of a message that are still in the queue."""
        own = self.steps[message_id]
        left = [self.steps[each] for each in self.queue.messages]
        return [each for each in left if each.group == own.group and each.number < own.number]

    def do(self, entry: Entry) -> Outcome:
        """Execute an entry of a call."""
        now = self.clock()
        try:
            if entry.action is Action.DELETE:
                self.queue.delete(entry.receipt_handle, now)
            else:
                self.queue.change_visibility(entry.receipt_handle, entry.timeout, now)
        except SqsError:
            return Outcome.LOST
        return Outcome.DONE


class Receiving:
    """What one keeper receives: from one queue, for the channels of its worker.

    Attributes:
        groups: The messages that wait for another of their group.
        channels: The channels that consume.
    """

    def __init__(self, elsewhere: Elsewhere, waiting: int) -> None:
        self.groups = GroupWaitlist(keeper=elsewhere.keeper, limit=waiting)
        self.channels: dict[int, ConsumedQueue] = {}
        self._elsewhere = elsewhere
        self._lock = threading.RLock()
        self._intakes: dict[int, Intake] = {}

    def poll_left(self, lease: Lease) -> float:
        del lease
        return 0.0

    def consume(self, channel: int, queues: Iterable[ConsumedQueue]) -> None:
        (self.channels[channel],) = queues

    def allow(self, channel: int, limit: int, prefetch_count: int) -> None:
        del prefetch_count
        self._intake(channel).allow(limit)

    def close(self, channel: int) -> None:
        queue = self.channels.pop(channel)
        self._intake(channel).end([queue.name])
        del self._intakes[channel]

    def end(self) -> None:
        for channel in tuple(self.channels):
            self.close(channel)

    def poll(self, queue: FifoQueue, count: int, latency: float) -> int:
        """Receive messages, and return how many there were."""
        self._read_rooms()
        for channel, consumed in self.channels.items():
            intake = self._intake(channel)
            sent_at = queue.clock()
            count = min(count, self.groups.most_wanted, intake.room)
            messages = queue.receive(count) if count > 0 else []
            queue.clock.advance(latency)
            if messages:
                intake.take(consumed, messages, sent_at=sent_at)
            return len(messages)
        return 0

    def look(self) -> None:
        """Hand over what may start by now."""
        self._read_rooms()
        for intake in tuple(self._intakes.values()):
            intake.look()

    def take_turns(self) -> None:
        if len(self.groups):
            self.look()

    def _read_rooms(self) -> None:
        outlet = self._elsewhere.outlet
        while wait_readable([outlet._socket.fileno()], 0):
            assert outlet.read_rooms(self.allow)

    def _intake(self, channel: int) -> Intake:
        if channel not in self._intakes:
            keeper, leases = self._elsewhere.keeper, self._elsewhere.leases
            self._intakes[channel] = Intake(
                keeper=keeper,
                waitlist=self.groups,
                lock=self._lock,
                hand_over=partial(leases.deliver, channel),
                keep=leases.keep,
                release_one=lambda message, cause: keeper.release(
                    message["ReceiptHandle"], 0, cause
                ),
                heir=lambda queue: None,
            )
        return self._intakes[channel]


class Side(Linked):
    """A worker with its keeper and its tasks.

    Args:
        check: Called with the id of each message whose task begins.
        waiting: How many messages may wait for another of their group.
        room: How many messages Celery may have at once.
    """

    def __init__(
        self,
        queue: FifoQueue,
        check: Callable[[str], None],
        waiting: int,
        room: int = PLENTY,
    ) -> None:
        self._queue = queue
        self._check = check
        self._waiting = waiting
        self._room = room
        self._channel = 0
        #: The messages that Celery has.
        self.reserved: deque[HandedOver] = deque()
        #: The ids of messages whose tasks run, by receipt handle.
        self.running: dict[str, str] = {}
        self.late: list[Call] = []
        super().__init__(jitter=1.0, clock=queue.clock)
        self.worker.on_arrived = self._arrive
        self._connect()

    def start(self) -> None:
        super().start()
        self.receiving = Receiving(self.elsewhere, self._waiting)
        self.elsewhere.end._reception = self.receiving  # type: ignore[assignment]

    def take(self, most: float = math.inf) -> None:
        """Have the keeper handle the next messages."""
        self.elsewhere.take(most)

    def deliver(self) -> None:
        self.take()
        self.hear()

    def poll(self, count: int, *, latency: float = 0.0) -> int:
        """Have the keeper receive messages, and return how many there were.

        Args:
            latency: How long the answer takes, in seconds.
        """
        while not self.receiving.channels and self.elsewhere.inbox.messages:
            # It hears of its consumer after it has got all leases.
            self.take(1)
        return self.receiving.poll(self._queue, count, latency)

    def _connect(self) -> None:
        self._channel += 1
        url = self._queue.queue.url
        source = ConsumedQueue(
            name="orders.fifo", url=url, lease_url=url, terms=TERMS, timeout=TIMEOUT
        )
        self.worker.consume(self._channel, [source])
        self._allow()

    def _allow(self) -> None:
        self.worker.allow(self._channel, lambda: (self._free(), self._room))

    def _free(self) -> int:
        return self._room - len(self.reserved) - len(self.running)

    def _arrive(self, messages: list[tuple[int, HandedOver]]) -> None:
        self.reserved += [arrived for channel, arrived in messages if channel == self._channel]
        for channel, arrived in reversed(messages):
            if channel != self._channel:
                self.worker.release(arrived.handle, 0, "consumer closed")

    def start_tasks(self) -> None:
        """Start the tasks that wait, except those whose messages are no longer ours."""
        while self.reserved:
            self._start(self.reserved.popleft())
        self._allow()

    def _start(self, arrived: HandedOver) -> None:
        tag, message_id = arrived.handle, arrived.lease.message_id
        if self.worker.find(tag) is not arrived.lease or arrived.lease.goal is not Goal.HOLD:
            return
        if not self.worker.owns(tag):
            self.worker.disown(tag)
            return
        self._check(message_id)
        self.running[tag] = message_id

    def succeed(self) -> None:
        """Have the oldest task succeed."""
        tag = next(iter(self.running))
        self._queue.succeeded.append(self._queue.steps[self.running.pop(tag)])
        self.worker.done(tag)
        self._allow()

    def fail(self, delay: float) -> None:
        """Have the oldest task fail."""
        tag = next(iter(self.running))
        del self.running[tag]
        self.worker.release(tag, delay, "failed")
        self._allow()

    def reconnect(self) -> None:
        """Lose the connection. Running tasks continue."""
        self.worker.close(self._channel)
        while self.reserved:
            self.worker.release(self.reserved.pop().handle, 0, "consumer closed")
        self._connect()

    def turn(self) -> None:
        """Have the keeper hand over what may start by now, and the worker get it."""
        self.receiving.look()
        self.worker.pull()

    def crash(self) -> Elsewhere:
        """Die. The keeper releases the messages that it knows of, and everything else is gone."""
        self.running.clear()
        orphan = self.elsewhere
        self.take()
        self.receiving.end()
        for lease in orphan.end.held():
            orphan.keeper.release(lease.receipt_handle, 0, "worker died")
        return orphan

    def answer(self, elsewhere: Elsewhere, index: int, how: str) -> None:
        """Have SQS answer a call, or not.

        Args:
            how: "done"; "failed": it had no effect; "lost": it took effect, but the answer is lost;
                "late": it takes effect after the call was given up; "never".
        """
        call, settle = elsewhere.calls.out.pop(index)
        outcomes = [Outcome.FAILED] * len(call.entries)
        if how in ("done", "lost"):
            outcomes = [self.do(entry) for entry in call.entries]
        if how in ("lost", "late", "never"):
            outcomes = [Outcome.UNKNOWN] * len(call.entries)
        settle(outcomes)
        if how == "late":
            self.late.append(call)

    def do(self, entry: Entry) -> Outcome:
        """Have SQS execute an entry, which must not release a message that runs here."""
        outcome = self._queue.do(entry)
        if entry.action is Action.RELEASE and outcome is Outcome.DONE:
            runs = entry.lease.message_id in self.running.values()
            assert not runs, f"{self._queue.steps[entry.lease.message_id]} is released but runs"
        return outcome
