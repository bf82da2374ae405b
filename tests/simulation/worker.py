"""A simulated worker: the real keeper, called as the transport calls it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED
from celery_sqs_heartbeat.leases.lease import LeaseStatus
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.orphaned_messages import LOOK_SECONDS
from tests.simulation.apart import Apart
from tests.simulation.consumer import Consumer
from tests.simulation.ordered_intake import CONFIRM_LOOK_SECONDS, OrderedIntake
from tests.simulation.profile import patience
from tests.simulation.rules import check_belief
from tests.simulation.swallowing import Net
from tests.simulation.truth import Execution
from tests.simulation.within import Within

if TYPE_CHECKING:
    from tests.simulation.world import World


class SimulatedWorker:
    """Consecutive worker processes on one machine, under one name.

    Attributes:
        gives_up_polls: Whether a poll has a deadline.
        reads_last_poll: Whether a worker that ends waits for its open poll.
    """

    gives_up_polls = True
    reads_last_poll = True

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.suspended = 0.0
        self.paused_until = self.asleep_until = 0.0
        self.ended_life: int | None = None
        self.start()

    def start(self) -> None:
        """Begin a new process."""
        self.life += 1
        self.is_up = True
        self.is_stopping = False
        self._queued: deque[dict[str, Any]] = deque()
        #: Handles of messages that wait until an extension is confirmed.
        self._unconfirmed: set[str] = set()
        self.running: dict[str, Execution] = {}
        self.world.starting.begin(self.name)
        self.terms = self.world.attributes.known_to(self)
        self.patience = self.world.profile.call_timeout
        self.keeping: Apart | Within = Apart(self) if self.world.is_apart else Within(self)
        self.keeper: LinkedKeeper | ThreadKeeper = self.keeping.keeper
        self._net = Net(self.world, self.keeper)
        self._intake = OrderedIntake(self, self._queued.append)
        self._consumers = self._new_consumers()
        self.go_on()

    def now(self) -> float:
        """Return the worker's monotonic time. Its clock stops while the machine is suspended."""
        return self.world.clock() - self.suspended

    # -- What disturbs it --------------------------------------------------------------

    def crash(self) -> None:
        """Die at once; another process takes its place after a while."""
        self.world.disturb(self.name, "crashes")
        self.is_stopping = False
        for execution in self.running.values():
            self.world.ended(execution)
        # Also messages whose task had succeeded, but whose delete was not yet confirmed.
        for lease in self.keeping.leases():
            self.world.truth[lease.message_id].excuses.add("worker died")
        self.keeping.die()
        self._end()

    def pause(self, seconds: float, *, is_suspend: bool) -> None:
        """Stall for a while. If the machine is suspended, its clock stops, too."""
        self.world.disturb(self.name, "is suspended" if is_suspend else "pauses")
        if is_suspend:
            for lease in self.keeping.leases():
                self.world.truth[lease.message_id].excuses.add("suspend")
        else:
            self.keeping.note_pause()
        # A job that waits for the end of an earlier pause is not delayed longer than the others.
        self.paused_until = max(self.paused_until, self.world.clock() + seconds)
        if is_suspend:
            self.asleep_until = self.paused_until
            self.suspended += seconds

    def reconnect(self) -> None:
        """Lose the channel: release the messages that have not started, and abandon the last poll.

        A worker that is stopping has left its loop, and keeps its last poll.
        """
        if self.is_stopping:
            return
        self.world.disturb(self.name, "reconnects")
        self.life += 1
        self._consumers = self._new_consumers()
        self._return_unstarted()
        self.go_on()

    def stop(self) -> None:
        """Begin a warm shutdown: start no more tasks, and end with the last one."""
        self.world.disturb(self.name, "shuts down")
        self.is_stopping = True
        self._return_unstarted()
        if self.reads_last_poll:
            for consumer in self._consumers:
                consumer.end()
        self.go_on()

    # -- Its life ----------------------------------------------------------------------

    def hurry(self, threshold: float) -> None:
        """Give calls up early enough for a lease with this threshold, as a worker's clients do."""
        self.patience = min(self.patience, patience(threshold))

    def when_awake(self, process: LinkedKeeper | ThreadKeeper, job: Callable[[], None]) -> None:
        """Run a job of that process now, or once it continues; never in another process."""
        if process is not self.keeper or not self.is_up:
            return
        if self.world.clock() < self.paused_until:
            self.world.clock.at(self.paused_until, lambda: self.when_awake(process, job))
        else:
            job()

    def _new_consumers(self) -> list[Consumer]:
        return [Consumer(self, queue) for queue in self.world.queues]

    def go_on(self) -> None:
        """Start the tasks that can start, poll when there is room, and let the keeper work."""
        while self._queued and len(self.running) < self.world.profile.concurrency:
            self._begin(self._queued.popleft())
        self.keeping.keep()
        self._intake.wake()
        if self.is_stopping:
            if not self.running:
                self._net.close()
            is_reading = any(consumer.is_reading for consumer in self._consumers)
            if not self.running and not self.keeper.ending and not is_reading:
                self._end()
            return
        for consumer in self._consumers if not self.keeper.is_behind else ():
            if isinstance(self.keeping, Apart) and not self.keeping.has_begun:
                self.world.fail(f"{self.name} polls before its keeper is ready")
            while consumer.wants_poll(left := self._room() - self.requested):
                consumer.poll(max(1, min(left, self._most_wanted())))

    @property
    def requested(self) -> int:
        """How many messages its open polls may return."""
        return sum(consumer.requested for consumer in self._consumers)

    def _room(self) -> int:
        held = len(self._queued) + len(self._unconfirmed) + len(self.running) + self._intake.held
        return self.world.profile.prefetch - held

    def _most_wanted(self) -> int:
        is_ordered = self.world.order.is_kept
        return min(MAX_RECEIVED, self._intake.most_wanted) if is_ordered else MAX_RECEIVED

    def receive_all(
        self, url: str, messages: list[dict[str, Any]], timeout: int | None, sent_at: float
    ) -> None:
        """Lease the messages of a poll, and queue them for their tasks."""
        if self.world.order.is_kept:
            self._intake.take(url, messages, timeout, sent_at)
            return
        for message in messages:
            if self.lease(url, message, timeout, sent_at) is ReceivedAs.NEW:
                self._queue(url, message, timeout)

    def lease(
        self, url: str, message: dict[str, Any], timeout: int | None, sent_at: float
    ) -> ReceivedAs:
        """Begin the lease on a message of a poll, or continue the lease that it has."""
        self.world.received(message)
        receipt = self.keeper.receive(
            url,
            message,
            terms=self.terms.of(url, timeout),
            hidden_for=timeout or 0,
            sent_at=sent_at,
        )
        self.world.log(self.name, f"receives {receipt.value}", message["MessageId"])
        if lease := self.keeper.find(message["ReceiptHandle"]):
            check_belief(lease, self.world.truth[lease.message_id], self.suspended)
            self.keeping.note_receive(lease)
        self.world.note_refused(self.keeping.board)
        return receipt

    def _queue(self, url: str, message: dict[str, Any], timeout: int | None) -> None:
        if self.is_stopping:
            self.world.disturb(self.name, "last poll brings a message")
            self.keeper.release(message["ReceiptHandle"])
        elif timeout is None:
            self._await_confirmation(message, self.terms.of(url, timeout).threshold)
        else:
            self._queued.append(message)

    def _await_confirmation(self, message: dict[str, Any], threshold: float) -> None:
        """Queue a message once its extension is confirmed, or let it expire otherwise."""
        handle, process, since = message["ReceiptHandle"], self.keeper, self.now()

        def look() -> None:
            if handle not in self._unconfirmed:
                # It was released meanwhile.
                return
            lease = process.find(handle)
            if lease is not None and (lease.extensions or lease.status is not LeaseStatus.OWNED):
                if lease.is_exclusive and process.owns(handle):
                    self._unconfirmed.remove(handle)
                    self._queued.append(message)
                    self.go_on()
                    return
            elif lease is not None and self.now() < since + max(1.0, threshold):
                look_later()
                return
            self.world.disturb(self.name, "drops a message that no extension confirmed")
            self._unconfirmed.discard(handle)
            process.let_expire(handle)
            self.go_on()

        def look_later() -> None:
            again = partial(self.when_awake, process, look)
            self.world.clock.at(self.world.clock() + CONFIRM_LOOK_SECONDS, again)

        self._unconfirmed.add(handle)
        look_later()

    def _begin(self, message: dict[str, Any]) -> None:
        if self.world.order.is_kept and not self._intake.may_begin(message["ReceiptHandle"]):
            return
        if self.keeper.is_lost(message["ReceiptHandle"]):
            self.world.disturb(self.name, "loses a lease before its task starts")
            self.keeper.disown(message["ReceiptHandle"])
            return
        execution = self.world.begun(self, message)
        self.running[execution.handle] = execution
        self._net.begin(execution.handle)
        self.keeper.note_start(execution.handle)
        seconds = self.world.task_seconds()
        process = self.keeper
        self.world.clock.at(
            self.world.clock() + seconds,
            lambda: self.when_awake(process, partial(self._finish, execution)),
        )

    def _finish(self, execution: Execution) -> None:
        del self.running[execution.handle]
        self.world.ended(execution)
        if self.world.swallowing.draw():
            self.world.disturb(self.name, "loses a task's end")
            self.world.clock.at(
                self.world.clock() + LOOK_SECONDS,
                partial(self.when_awake, self.keeper, self._look),
            )
        elif self.world.succeeds(execution):
            self.keeper.done(execution.handle)
        else:
            self.keeper.release(execution.handle, self.world.release_delay())
        self._net.end(execution.handle)
        self.go_on()

    def _look(self) -> None:
        self._net.look()
        self.go_on()

    def _return_unstarted(self) -> None:
        self._intake.leave("consumer closed")
        while self._queued:
            self.keeper.release(self._queued.popleft()["ReceiptHandle"])
        for handle in self._unconfirmed:
            self.keeper.release(handle)
        self._unconfirmed.clear()

    def _end(self) -> None:
        if self.is_stopping and len(self.keeper):
            self.world.fail(f"8: {self.name} ends with {len(self.keeper)} leases")
        if self.is_stopping:
            self.keeping.end()
        self.ended_life = self.life if self.is_stopping else None
        self.is_up = False
        self.running.clear()
        self.world.clock.at(self.world.clock() + self.world.restart_seconds(), self.start)
