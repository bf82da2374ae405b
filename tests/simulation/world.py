"""One world: a queue, its workers, their messages and disturbances, and the invariants."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.leases.lease import LeaseStatus
from celery_sqs_heartbeat.testing import FakeClock, Faults, SimulatedSqs
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue
from tests.simulation import disturbances
from tests.simulation.disturbances import Attributes, Refusals
from tests.simulation.expectations import Order, Waiting
from tests.simulation.faults import (
    UNREAD_THRESHOLD,
    Delayed,
    Hangs,
    Holding,
    Outage,
    Starting,
    Swallowing,
)
from tests.simulation.network import UNANSWERED, Network, Polls
from tests.simulation.profile import draw, failing_afterwards, meets, quickened
from tests.simulation.rules import CallJudge
from tests.simulation.truth import HANGING, Execution, MessageTruth, Receives, Tally, Violation
from tests.simulation.worker import SimulatedWorker

#: How many lines of the trace are kept.
TRACE_LINES = 4_000
#: After the last disturbance, every message ends within this many visibility timeouts plus this
#: many mean run times.
PATIENCE = 400
#: How many calls a calm world may make beyond those that it would need without any failure.
RETRIES = 1.15
#: In a calm world nothing else may deliver a message twice. Its faults leave enough time to keep
#: every lease.
CALM_EXCUSES = {"worker died", "capped", HANGING}


class World:
    """Everything that one seed makes.

    Args:
        kind: One of `profile.KINDS`.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.random = random.Random(f"{kind} {seed}")
        self.poll_random = random.Random(f"{kind} {seed} polls")
        self.process_random = random.Random(f"{kind} {seed} keeper's process")
        self.is_apart = kind.endswith("-apart")
        #: Whether its messages are tasks, whose pace bounds what a worker holds.
        self.is_paced = random.Random(f"{kind} {seed} pace").random() < 0.5
        self.profile = draw(kind, self.random)
        if meets(seed, "a server that stalls at a start"):
            self.profile = quickened(self.profile, UNREAD_THRESHOLD)
        self.swallowing = Swallowing(kind, seed)
        self.order = Order(self, kind, seed)
        profile = self.profile
        self.clock = FakeClock()
        self.faults = Faults(
            seed=seed,
            by_operation={
                "ChangeMessageVisibility": profile.changing,
                "DeleteMessage": profile.deleting,
                "ReceiveMessage": profile.receiving,
            },
        )
        if meets(seed, "calls that fail afterwards"):
            self.faults.by_operation |= {
                "ChangeMessageVisibility": failing_afterwards(profile.changing, profile.is_calm),
                "DeleteMessage": failing_afterwards(profile.deleting, profile.is_calm),
            }
        self.sqs = SimulatedSqs(self.clock, seed=seed, faults=self.faults, epoch=0.0)
        self.sqs.on_delete = self._on_delete
        self.dead_letters = self.sqs.new_queue("dead")
        self.queues = [self._new_queue("q")]
        if meets(seed, "two queues"):
            self.queues.append(self._new_queue("other"))
        self.network = Network(self.clock, self.faults)
        self.refusals = Refusals(self, kind, seed)
        self.hangs = Hangs(self, f"{kind} {seed}")
        self.delayed = Delayed(self, kind, seed)
        self.starting = Starting(self, kind, seed)
        self.holding = Holding(self, kind, seed)
        self.judge = CallJudge(self)
        self.truth: dict[str, MessageTruth] = {}
        self._by_body: dict[str, MessageTruth] = {}
        self.receives = Receives(self)
        self.polls = {queue.url: Polls(self, queue) for queue in self.queues}
        self.tally = Tally()
        self.trace: deque[tuple[float, str, str, str]] = deque(maxlen=TRACE_LINES)
        self.is_over = False
        self.violation: Violation | None = None
        self.attributes = Attributes(self, kind, seed)
        self.outage = Outage(self, f"{kind} {seed}")
        # The first polls are noted before there are all workers.
        self.workers: list[SimulatedWorker] = []
        self.waiting = Waiting(self)
        self.workers += [SimulatedWorker(self, f"w{n}") for n in range(profile.workers)]

    def run(self) -> Tally:
        """Run the world to its end, then wait until every message has ended.

        Raises:
            Violation: An invariant does not hold.
        """
        profile = self.profile
        self._send()
        for worker in self.workers:
            disturbances.plan(self, worker)
        self.refusals.plan()
        self._run_until(profile.seconds)
        self.is_over = True
        # From here on there are no more disturbances and no more messages are sent.
        self.faults.by_operation = {}
        self.refusals.end()
        self.outage.end()
        step = profile.terms.visibility_timeout + profile.mean_task
        for _ in range(PATIENCE):
            is_empty = not any(queue.messages for queue in self.queues)
            if is_empty and not any(
                len(w.keeper) + w.keeper.ending + len(w.keeping.board.leases())
                for w in self.workers
            ):
                break
            self._run_until(self.clock() + step)
            self.order.check_progress()
        self._check_end()
        self._check_efficiency()
        self.tally.worker_hours = profile.workers * profile.seconds / 3600
        return self.tally

    def every(self, chance: random.Random, rate: float, job: Callable[[], None]) -> None:
        """Do a job again and again while the world lasts, so many times a second on average."""

        def do() -> None:
            if not self.is_over:
                self.every(chance, rate, job)
                job()

        self.clock.at(self.clock() + chance.expovariate(rate), do)

    def log(self, who: str, what: str, message_id: str = "") -> None:
        """Add a line to the trace."""
        self.trace.append((self.clock(), who, what, message_id))

    def disturb(self, who: str, what: str) -> None:
        """Count a disturbance, and add it to the trace."""
        self.tally.disturbances[what] += 1
        self.log(who, what)

    def fail(self, text: str) -> None:
        """Raise a violation, and remember it, because a keeper catches its observer's errors."""
        self.violation = self.violation or Violation(text)
        raise self.violation

    # -- Requests of workers -----------------------------------------------------------

    def loses_poll(self) -> bool:
        """Draw whether a poll is not answered in time."""
        is_lost = self.poll_random.random() < UNANSWERED
        return is_lost and not self.profile.is_calm and not self.is_over

    def wake_polls(self) -> None:
        """Answer the polls that can be answered."""
        for polls in self.polls.values():
            polls.wake()

    def task_seconds(self) -> float:
        """Draw a run time. Most are below the mean, some are many times the mean."""
        return self.random.lognormvariate(-0.5, 1.0) * self.profile.mean_task

    def release_delay(self) -> float:
        """Draw the delay of a release after a failure."""
        return self.random.choice((0.0, 0.0, 1.0, 7.5))

    def restart_seconds(self) -> float:
        """Draw how long it takes until a new process replaces a dead one."""
        return self.random.uniform(0.5, 20.0)

    def received(self, message: dict[str, Any]) -> None:
        """Note whether a message still belongs to its receiver when the receiver sees it."""
        there = self.truth[message["MessageId"]].message
        if (
            there is None
            or there.handle != message["ReceiptHandle"]
            or there.visible_at <= self.clock()
        ):
            self.truth[message["MessageId"]].excuses.add("delayed on its way")

    def begun(self, worker: SimulatedWorker, message: dict[str, Any]) -> Execution:
        """Note that a message's task starts, and check that it may."""
        truth = self.truth[message["MessageId"]]
        lease = worker.keeper.find(message["ReceiptHandle"])
        if lease is not None and lease.status is LeaseStatus.LOST:
            self.fail(f"{truth.message_id} starts on {worker.name}, but its lease is lost")
        self.order.check_start(worker.name, truth)
        execution = Execution(truth.message_id, message["ReceiptHandle"], worker.name)
        self.log(worker.name, "begins", truth.message_id)
        self.tally.executions += 1
        truth.receives[execution.handle].is_run = True
        if truth.running or truth.succeeded:
            if truth.running:
                self.tally.overlaps += 1
            else:
                self.tally.repeats += 1
            if any(other.worker == worker.name for other in truth.running):
                self.fail(f"{truth.message_id} runs twice on {worker.name}")
            excuses = truth.excuses & CALM_EXCUSES if self.profile.is_calm else truth.excuses
            if not excuses:
                self.fail(f"2: {truth.message_id} runs again on {worker.name}, without a cause")
            for excuse in excuses:
                self.tally.causes[excuse] += 1
        truth.running.append(execution)
        truth.executions += 1
        return execution

    def ended(self, execution: Execution) -> None:
        """Note that an execution has ended, in any way."""
        self.truth[execution.message_id].running.remove(execution)

    def succeeds(self, execution: Execution) -> bool:
        """Draw whether a task that ran to its end succeeds."""
        truth = self.truth[execution.message_id]
        good = not truth.is_poison and self.random.random() >= self.profile.failing
        self.log(execution.worker, "succeeds" if good else "fails", truth.message_id)
        truth.succeeded = truth.succeeded or good
        return good

    def sent_again(self, worker: str, body: str, message_id: str) -> None:
        """Note that a message has taken the place of another one, with the same body."""
        former = self._by_body[body]
        former.is_sent_again = True
        self.disturb(worker, "sends a message again")
        truth = MessageTruth(message_id, former.queue, former.is_poison)
        self.truth[message_id] = self._by_body[body] = truth
        self.outage.excuse(truth)
        self.polls[former.queue.url].wake()

    # -- Inside ------------------------------------------------------------------------

    def _new_queue(self, name: str) -> SimulatedQueue:
        profile = self.profile
        options = QueueOptions(
            visibility_timeout=profile.terms.visibility_timeout,
            # The longest worlds outlast the default retention of four days.
            retention=1_209_600,
            max_receive_count=profile.max_receive_count,
            dead_letters=self.dead_letters,
            late_extension=profile.late_extension,
            duplicate_rate=profile.duplicate_rate,
        )
        return self.sqs.new_queue(f"{name}.fifo" if profile.is_fifo else name, options)

    def _send(self) -> None:
        """Send messages over the whole time, about as many as the workers can process."""
        profile = self.profile
        rate = self.order.tasks_at_once() / profile.mean_task
        count = max(1, round(rate * profile.seconds * 0.9))
        for _ in range(count):
            self.clock.at(self.random.uniform(0, profile.seconds * 0.9), self._send_one)

    def _send_one(self) -> None:
        queue = self.outage.choose_queue()
        # Its number: a message that is sent again has the same body.
        body = str(self.tally.messages)
        request: dict[str, Any] = {"QueueUrl": queue.url, "MessageBody": body}
        if self.profile.is_fifo:
            group = str(self.random.randint(1, 8))
            request["MessageGroupId"] = self.order.group() if self.order.is_kept else group
            request["MessageDeduplicationId"] = str(self.random.getrandbits(64))
        message_id = self.sqs.call("SendMessage", request)["MessageId"]
        is_poison = (
            self.profile.max_receive_count is not None
            and self.random.random() < self.profile.poison
        )
        truth = self.truth[message_id] = MessageTruth(message_id, queue, is_poison)
        self._by_body[body] = truth
        self.outage.excuse(truth)
        self.tally.messages += 1
        self.polls[queue.url].wake()

    def _run_until(self, end: float) -> None:
        while (due := self.clock.next_time()) is not None and due <= end:
            self.clock.run_next()
            self.tally.events += 1
            if self.violation is not None:
                raise self.violation
        self.clock.advance(max(0.0, end - self.clock()))

    def _on_delete(self, message: SimulatedMessage) -> None:
        truth = self.truth[message.message_id]
        truth.is_deleted = True
        if not (truth.succeeded or truth.is_sent_again):
            self.fail(f"1: {truth.message_id} is deleted, but its task did not succeed")

    def _check_efficiency(self) -> None:
        """Check that a worker with fewer than ten messages makes one call per period."""
        rate = self.attributes.calls_a_second() * self.order.calls_a_period()
        self.tally.visibility_bound += len(self.queues) * self.profile.workers * self.clock() * rate
        if self.profile.is_calm:
            bound = RETRIES * self.tally.visibility_bound + 10
            if self.tally.visibility_calls > bound:
                self.fail(f"efficiency: {self.tally.visibility_calls} calls, {bound:.0f} allowed")

    def _check_end(self) -> None:
        left = [message_id for queue in self.queues for message_id in queue.messages]
        if left:
            self.fail(f"liveness: {len(left)} messages have not ended: {', '.join(left[:5])}")
        for worker in self.workers:
            kept = max(len(worker.keeper), worker.keeper.ending, len(worker.keeping.board.leases()))
            if kept:
                self.fail(f"8: {worker.name} keeps {kept} leases without messages")
        for truth in self.truth.values():
            if not truth.is_deleted and truth.message_id not in self.dead_letters.messages:
                self.fail(f"1: {truth.message_id} is lost")
        self.receives.check()
