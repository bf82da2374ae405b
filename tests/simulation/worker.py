"""A simulated worker: the real keeper, called as the transport calls it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.leases.policy import is_lost
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.binding import OrphanedMessages
from tests.simulation.apart import Apart
from tests.simulation.link import Delivered
from tests.simulation.profile import patience
from tests.simulation.truth import LOST, Execution
from tests.simulation.within import Within

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How often a worker looks for messages that nothing settles any more, in seconds.
LOOK_SECONDS = 1.0


class SimulatedWorker:
    """Consecutive worker processes on one machine, under one name.

    Attributes:
        gives_up_polls: Whether a poll has a deadline.
    """

    gives_up_polls = True

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.suspended = 0.0
        self.paused_until = self.asleep_until = 0.0
        self.start()

    def start(self) -> None:
        """Begin a new process."""
        self.life += 1
        self.is_up = True
        self.is_stopping = False
        #: The messages that were handed over, and whose tasks have not started.
        self.queued: deque[Any] = deque()
        self.running: dict[str, Execution] = {}
        self.world.starting.begin(self.name)
        self.patience = self.world.profile.call_timeout
        self.keeping: Apart | Within = Apart(self) if self.world.is_apart else Within(self)
        self.keeper: LinkedKeeper | ThreadKeeper = self.keeping.keeper
        self._net = Net(self.world, self.keeper)
        self.world.attributes.prepare(self.keeping.leased)
        self.keeping.open_channel()
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
            self.world.receives.explain(lease.message_id, self.name, "worker died", is_guess=True)
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
        self.keeping.close_channel()
        self.release_queued("consumer closed")
        self.keeping.open_channel()
        self.go_on()

    def stop(self) -> None:
        """Begin a warm shutdown: start no more tasks, and end with the last one."""
        self.world.disturb(self.name, "shuts down")
        self.keeping.end_receiving()
        self.release_queued("shutdown")
        self.is_stopping = True
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

    def go_on(self) -> None:
        """Start the tasks that can start, receive when there is room, and let the keeper work."""
        self._start_tasks()
        self.keeping.work()
        self._start_tasks()
        if self.is_stopping:
            if not self.running:
                self._net.close()
                if self.keeping.finish():
                    self._end()
            return
        self.keeping.receive()

    def take(self, arrived: Arrived | Delivered) -> None:
        """Take a message that was handed over."""
        self.world.log(self.name, "is handed over", arrived.lease.message_id)
        self.world.truth[arrived.lease.message_id].receives[arrived.handle].is_taken = True
        self.queued.append(arrived)

    def check_held(self, held: int) -> None:
        """Check how many messages it has for its prefetch slots."""
        # Each queue has a poll that asks for one message, and what waited for its group is handed
        # over at its turn. In a storm, a poll may be answered after it was given up.
        world, prefetch = self.world, self.world.profile.prefetch
        beyond = len(world.queues) + world.order.waiting
        if world.profile.is_calm and held - prefetch > beyond:
            world.fail(f"{self.name} has {held} messages for {prefetch} slots")

    def _start_tasks(self) -> None:
        while self.queued and len(self.running) < self.world.profile.concurrency:
            arrived = self.queued.popleft()
            if not self._begin(arrived):
                self.keeping.free(arrived)

    def _begin(self, arrived: Arrived | Delivered) -> bool:
        """Start a message's task, unless the message is no longer ours."""
        if not self._may_begin(arrived):
            return False
        execution = self.world.begun(self, arrived.message)
        self.running[execution.handle] = execution
        free, takes_slot = self.keeping.free, self.keeping.takes_slot
        self._net.begin(execution.handle, partial(free, arrived), partial(takes_slot, arrived))
        self.keeper.note_start(execution.handle)
        seconds = self.world.task_seconds()
        process = self.keeper
        self.world.clock.at(
            self.world.clock() + seconds,
            lambda: self.when_awake(process, partial(self._finish, execution, arrived)),
        )
        return True

    def _may_begin(self, arrived: Arrived | Delivered) -> bool:
        """Return whether a task may begin, as `LeasedRequest` decides it."""
        handle, lease = arrived.handle, arrived.lease
        if self.keeper.find(handle) is not lease or lease.goal is not Goal.HOLD:
            self.world.disturb(self.name, "starts no task whose message was released")
            return False
        is_kept = self.world.order.is_kept
        is_gone = not self.keeper.owns(handle) if is_kept else is_lost(lease, self.now())
        if is_gone:
            self.world.disturb(self.name, "loses a lease before its task starts")
            self.world.receives.explain(lease.message_id, self.name, LOST)
            self.keeper.let_expire(handle)
        return not is_gone

    def _finish(self, execution: Execution, arrived: Any) -> None:
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
            self.keeping.free(arrived)
        else:
            self.keeper.release(execution.handle, self.world.release_delay())
            self.keeping.free(arrived)
        self._net.end(execution.handle)
        self.go_on()

    def _look_for_lost_ends(self) -> None:
        self._net.look()
        self.go_on()

    def release_queued(self, cause: str) -> None:
        """Release the messages whose tasks have not started, the last one first."""
        while self.queued:
            arrived = self.queued.pop()
            self.keeper.release(arrived.handle, cause=cause)
            self.keeping.free(arrived)

    def _end(self) -> None:
        if self.is_stopping and len(self.keeper):
            self.world.fail(f"8: {self.name} ends with {len(self.keeper)} leases")
        if self.is_stopping:
            self.keeping.end()
        self.is_up = False
        self.running.clear()
        self.world.clock.at(self.world.clock() + self.world.restart_seconds(), self.start)


class Request:
    """Stands for Celery's request and the pool's job, which ack or release a message."""


class Net:
    """The real net over a simulated worker's keeper, with its requests and its channel."""

    def __init__(self, world: World, keeper: LinkedKeeper) -> None:
        self._world = world
        self._keeper = keeper
        self._requests: dict[str, Request] = {}
        self._unsettled = OrphanedMessages(keeper)
        may_run_on = world.swallowing.may_run_on
        self._unsettled.attach(forget=lambda request: None, may_run_on=may_run_on)
        self.look = self._unsettled.look
        self.close = self._unsettled.close

    def begin(
        self, handle: str, free: Callable[[], object], takes_slot: Callable[[], bool]
    ) -> None:
        """Note that a message's task begins.

        Args:
            free: Frees the message's prefetch slot.
            takes_slot: Returns whether it has one.
        """
        request = self._requests[handle] = Request()
        lease = self._keeper.find(handle)
        if lease is None:
            return

        def reject(tag: str, requeue: bool) -> None:
            self._keeper.release(tag, self._world.release_delay())
            free()

        channel = SimpleNamespace(
            basic_reject=reject,
            takes_slot=lambda tag: takes_slot(),
            qos=SimpleNamespace(ack=lambda tag: free()),
        )
        message = SimpleNamespace(delivery_tag=handle, channel=channel)
        self._unsettled.watch(request, lease, message)

    def end(self, handle: str) -> None:
        """Note that the task has ended. Its request goes, even if the message is not settled."""
        del self._requests[handle]
