"""A simulated worker: the real keeper, called as the transport calls it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.receiving.answers import Message
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived, GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import Intake
from celery_sqs_heartbeat.sqs.consumed_queue import ConsumedQueue
from celery_sqs_heartbeat.transport.orphaned_messages import LOOK_SECONDS
from tests.simulation.apart import Apart
from tests.simulation.consumer import Consumer
from tests.simulation.profile import patience
from tests.simulation.swallowing import Net
from tests.simulation.truth import Execution
from tests.simulation.watching import WatchedKeeper
from tests.simulation.within import Within

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How often it looks whether an extension is confirmed, in seconds.
CONFIRM_LOOK_SECONDS = 0.25
#: How often it looks for messages whose turn has come, in visibility timeouts. A real worker looks
#: every second. That would find nothing more here, and would take many events.
LOOK_PART = 0.1


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
        #: The messages that were handed over, and whose tasks have not started.
        self._queued: deque[Arrived] = deque()
        self.running: dict[str, Execution] = {}
        self.world.starting.begin(self.name)
        self.terms = self.world.attributes.known_to(self)
        self.patience = self.world.profile.call_timeout
        self.keeping: Apart | Within = Apart(self) if self.world.is_apart else Within(self)
        self.keeper: LinkedKeeper | ThreadKeeper = self.keeping.keeper
        self._net = Net(self.world, self.keeper)
        self._watched: Any = WatchedKeeper(self)
        self._lock = SignalSafeLock()
        self._waitlist = GroupWaitlist(keeper=self._watched, limit=self.world.order.waiting)
        self._looks_at: float | None = None
        if isinstance(self.keeper, LinkedKeeper):
            self.keeper.on_turn = self._look
        self._open_channel()
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
        for queue in self.world.queues:
            self._waitlist.leave("consumer closed", queue.url)
            self._intake.end(queue.url)
        self._release_queued()
        self._open_channel()
        self.go_on()

    def stop(self) -> None:
        """Begin a warm shutdown: start no more tasks, and end with the last one."""
        self.world.disturb(self.name, "shuts down")
        self._intake.end()
        self._waitlist.leave("shutdown")
        self._release_queued()
        self.is_stopping = True
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

    def _open_channel(self) -> None:
        self._handed_over = 0
        self._intake = Intake(
            keeper=self._watched,
            waitlist=self._waitlist,
            lock=self._lock,
            hand_over=self._hand_over,
        )
        self._consumers = [Consumer(self, queue) for queue in self.world.queues]

    def go_on(self) -> None:
        """Start the tasks that can start, poll when there is room, and let the keeper work."""
        self._start_tasks()
        self.keeping.keep()
        if not isinstance(self.keeper, LinkedKeeper):
            # It reports no turns.
            self._look()
            self._start_tasks()
        if self.is_stopping:
            if not self.running:
                self._net.close()
            is_reading = any(consumer.is_reading for consumer in self._consumers)
            if not self.running and not self.keeper.ending and not is_reading:
                self._end()
            return
        self._allow()
        for consumer in self._consumers if not self.keeper.is_behind else ():
            if isinstance(self.keeping, Apart) and not self.keeping.has_begun:
                self.world.fail(f"{self.name} polls before its keeper is ready")
            while consumer.wants_poll(left := self._intake.room - self.requested):
                consumer.poll(max(1, min(left, self._most_wanted())))

    @property
    def requested(self) -> int:
        """How many messages its open polls may return."""
        return sum(consumer.requested for consumer in self._consumers)

    def _most_wanted(self) -> int:
        is_ordered = self.world.order.is_kept
        return min(MAX_RECEIVED, self._waitlist.most_wanted) if is_ordered else MAX_RECEIVED

    def take(self, queue: ConsumedQueue, messages: list[Message], sent_at: float) -> None:
        """Take the messages of a poll in."""
        if messages:
            self._intake.take(queue, messages, sent_at=sent_at)
        if len(self._waitlist) > self.world.order.most_waiting:
            self.world.fail(f"{len(self._waitlist)} messages wait on {self.name}")
        self._look_later()
        self.go_on()

    def _allow(self) -> None:
        """Let the messages be handed over for which there are prefetch slots."""
        free = self.world.profile.prefetch - len(self._queued) - len(self.running)
        self._intake.allow(self._handed_over + free)

    def _hand_over(self, messages: list[Arrived]) -> None:
        for arrived in messages:
            self.world.log(self.name, "is handed over", arrived.lease.message_id)
        self._handed_over += len(messages)
        self._queued += messages
        taken, prefetch = len(self._queued) + len(self.running), self.world.profile.prefetch
        if taken > prefetch:
            self.world.fail(f"{taken} of {prefetch} prefetch slots of {self.name} are taken")

    def _look(self) -> None:
        """Have messages handed over, as a slot is free, or at a message's turn."""
        if not self.is_stopping:
            self._allow()
            self._intake.look()
            self._look_later()

    def _look_later(self) -> None:
        if self._intake.is_unsure:
            wait = CONFIRM_LOOK_SECONDS
        elif self._waitlist:
            wait = LOOK_PART * self.world.profile.terms.visibility_timeout
        else:
            return
        due = self.world.clock() + wait
        if self._looks_at is None or due < self._looks_at:
            self._looks_at = due
            job = partial(self._look_at, due)
            self.world.clock.at(due, partial(self.when_awake, self.keeper, job))

    def _look_at(self, due: float) -> None:
        # Otherwise an earlier look has taken its place.
        if due == self._looks_at:
            self._looks_at = None
            self._look()
            self.go_on()

    def _start_tasks(self) -> None:
        while self._queued and len(self.running) < self.world.profile.concurrency:
            if not self._begin(self._queued.popleft()):
                # Its slot is free.
                self._look()

    def _begin(self, arrived: Arrived) -> bool:
        """Start a message's task, unless the message is no longer ours."""
        if not self._may_begin(arrived):
            return False
        execution = self.world.begun(self, arrived.message)
        self.running[execution.handle] = execution
        self._net.begin(execution.handle)
        self.keeper.note_start(execution.handle)
        seconds = self.world.task_seconds()
        process = self.keeper
        self.world.clock.at(
            self.world.clock() + seconds,
            lambda: self.when_awake(process, partial(self._finish, execution)),
        )
        return True

    def _may_begin(self, arrived: Arrived) -> bool:
        """Return whether a task may begin, as `LeasedRequest` decides it."""
        handle, lease = arrived.handle, arrived.lease
        is_lost = self.keeper.is_lost(handle)
        if self.world.order.is_kept:
            if self.keeper.find(handle) is not lease or lease.goal is not Goal.HOLD:
                self.world.disturb(self.name, "starts no task whose message was released")
                return False
            is_lost = not self.keeper.owns(handle)
        if is_lost:
            self.world.disturb(self.name, "loses a lease before its task starts")
            self.keeper.disown(handle)
        return not is_lost

    def _finish(self, execution: Execution) -> None:
        del self.running[execution.handle]
        self.world.ended(execution)
        if self.world.swallowing.draw():
            self.world.disturb(self.name, "loses a task's end")
            self.world.clock.at(
                self.world.clock() + LOOK_SECONDS,
                partial(self.when_awake, self.keeper, self._look_for_lost_ends),
            )
        elif self.world.succeeds(execution):
            self.keeper.done(execution.handle)
        else:
            self.keeper.release(execution.handle, self.world.release_delay())
        self._net.end(execution.handle)
        self._look()
        self.go_on()

    def _look_for_lost_ends(self) -> None:
        self._net.look()
        self.go_on()

    def _release_queued(self) -> None:
        while self._queued:
            self.keeper.release(self._queued.pop().handle)

    def _end(self) -> None:
        if self.is_stopping and len(self.keeper):
            self.world.fail(f"8: {self.name} ends with {len(self.keeper)} leases")
        if self.is_stopping:
            self.keeping.end()
        self.ended_life = self.life if self.is_stopping else None
        self.is_up = False
        self.running.clear()
        self.world.clock.at(self.world.clock() + self.world.restart_seconds(), self.start)
