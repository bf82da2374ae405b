"""Workers on one FIFO queue: the messages that they hold, run and lose, on the test's clock."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.leases.calls import Call, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, LeaseTerms
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived, GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import Intake
from celery_sqs_heartbeat.sqs.consumed_queue import ConsumedQueue
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.options import QueueOptions
from tests.model.linked import Elsewhere, Linked

TIMEOUT = 30
TERMS = replace(LeaseTerms.of(TIMEOUT), in_order=True)


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


class Side(Linked):
    """A worker with its keeper and its tasks.

    Args:
        check: Called with the id of each message whose task begins.
    """

    def __init__(self, queue: FifoQueue, check: Callable[[str], None], waiting: int) -> None:
        super().__init__(jitter=1.0, clock=queue.clock)
        self._queue = queue
        self._check = check
        self._lock = SignalSafeLock()
        self.groups = GroupWaitlist(keeper=self.worker, limit=waiting)
        self._source = ConsumedQueue(
            name="orders.fifo",
            url=queue.queue.url,
            lease_url=queue.queue.url,
            terms=TERMS,
            timeout=TIMEOUT,
        )
        #: The messages that Celery has.
        self.reserved: deque[Arrived] = deque()
        #: The ids of messages whose tasks run, by receipt handle.
        self.running: dict[str, str] = {}
        #: The keepers of workers that have died.
        self.orphans: list[Elsewhere] = []
        self._connect()

    def poll(self, count: int, *, latency: float = 0.0) -> int:
        """Receive messages, and return how many there were.

        Args:
            latency: How long the answer takes, in seconds.
        """
        sent_at = self.clock()
        messages = self._queue.receive(min(count, self.groups.most_wanted))
        self.clock.advance(latency)
        if messages:
            self._intake.take(self._source, messages, sent_at=sent_at)
        return len(messages)

    def _connect(self) -> None:
        self._intake = Intake(
            keeper=self.worker,
            waitlist=self.groups,
            lock=self._lock,
            hand_over=self.reserved.extend,
        )
        self._intake.allow(sys.maxsize)

    def start_task(self) -> None:
        """Start the oldest waiting task, unless its message is no longer ours."""
        arrived = self.reserved.popleft()
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

    def fail(self, delay: float) -> None:
        """Have the oldest task fail."""
        tag = next(iter(self.running))
        del self.running[tag]
        self.worker.release(tag, delay, "failed")

    def reconnect(self) -> None:
        """Lose the connection. Running tasks continue."""
        self.groups.leave("consumer closed")
        self._intake.end()
        while self.reserved:
            self.worker.release(self.reserved.pop().handle, 0, "consumer closed")
        self._connect()

    def turn(self) -> None:
        """Run the event loop once."""
        self._intake.look()

    def crash(self) -> Elsewhere:
        """Die. The keeper releases the messages that it knows of, and everything else is gone."""
        self.running.clear()
        orphan = self.elsewhere
        orphan.take()
        held = [each for each in orphan.keeper.leases() if each.goal is Goal.HOLD]
        for lease in held:
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

    late: list[Call]
