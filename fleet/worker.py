"""A worker of the fleet: the real keeper, called in the same way as by the transport."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import WORKER_DIED, Call, Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from fleet import profile
from fleet.network import Network
from fleet.profile import QueueProfile, Trouble
from fleet.recorder import Recorder
from fleet.truth import Execution, Receive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.world import World

#: The longest sleep of the keeper. It is woken whenever something is due.
_LONG = 1e9
#: How often a kill checks, in seconds, whether a journal could show it.
_KILL_POLL = 0.2
#: How many seconds a kill waits while deletes fail. More of them fail all the time.
_KILL_PATIENCE = 60.0
#: How many seconds longer a task runs if it would end during a call for it.
_ANSWER_POLL = 0.2
#: What a journal shows as the cause after failed calls. A call that is slow enough to cost a lease
#: is given up before it is answered.
_BLAMED = {
    Trouble.SLOW: "network",
    Trouble.REFUSED: "sqs-errors",
    Trouble.ERRORS: "sqs-errors",
    Trouble.LOST: "network",
    Trouble.DENIED: "not-permitted",
}


@dataclass(slots=True)
class _Held:
    """A message that this worker still holds, and its latest receive here."""

    receive: Receive
    handle: str
    profile: QueueProfile


class Worker:
    """One process of a worker with a keeper and a journal."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        self.world = world
        self.recorder = recorder
        self.troubled_at = world.clock()
        self.is_up = True
        self.is_stopping = self.is_dead = False
        self.network = Network(world.clock, world.adapter, world.random, world.is_stale)
        self.keeper = ThreadKeeper(
            world.adapter,
            interval=_LONG,
            clock=world.clock,
            jitter=world.random.random,
            observers=[self._observe],
            dispatcher=self,
        )
        self._held: dict[str, _Held] = {}
        self._receives: dict[str, Receive] = {}
        self._queued: deque[str] = deque()
        self._running = 0
        self._stalled_until = 0.0
        self._step_at: float | None = None
        self._refusing: set[str] = set()

    @property
    def wid(self) -> str | None:
        """Its id in the journal."""
        return self.recorder.wid

    @property
    def room(self) -> int:
        """How many more messages the worker accepts."""
        if not self.is_up or self.is_stopping or self._is_stalled():
            return 0
        return profile.PREFETCH - len(self._queued) - self._running

    @property
    def is_calm(self) -> bool:
        """Whether all its leases are certain."""
        now = self.world.clock()
        return (
            self.network.trouble is None
            and not self._is_stalled()
            and all(each.is_exclusive and now < each.expires_at for each in self.keeper.leases())
        )

    def take(self, queue: QueueProfile, message: Mapping[str, Any], receive: Receive) -> None:
        """Take in a message that was just received."""
        message_id, handle = message["MessageId"], message["ReceiptHandle"]
        if not queue.is_extended:
            receive.mark = "opted-out"
        elif self.world.urls[queue.name] in self._refusing:
            receive.mark = "not-permitted"
        leases = len(self.keeper)
        receipt = self.keeper.receive(
            self.world.urls[queue.name],
            message,
            terms=queue.terms,
            sent_at=self.world.clock() - self.network.latency(),
            max_receive_count=queue.max_receive_count,
            task=queue.task,
            task_id=f"t-{message_id[:13]}",
        )
        held = self._held.get(message_id)
        if receipt is ReceivedAs.NEW:
            self._held[message_id] = _Held(receive, handle, queue)
            self._queued.append(message_id)
        elif len(self.keeper) == leases:
            # Its lease continues, perhaps only for its delete, and so does its execution.
            receive.execution = self._receives[message_id].execution
            if held is not None:
                held.receive, held.handle = receive, handle
        self._receives[message_id] = receive
        self.go_on()

    def go_on(self) -> None:
        """Start the tasks that can start, and let the keeper make a step."""
        if not self.is_up or self._is_stalled():
            return
        while self._queued and self._running < profile.CONCURRENCY and not self.is_stopping:
            self._begin(self._queued.popleft())
        due = self.keeper.step()
        if due < _LONG / 2 and (self._step_at is None or due < self._step_at):
            self._step_at = due
            self.world.clock.at(due, partial(self._step, due))

    # -- The keeper's dispatcher -----------------------------------------------------------

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        """Carry a call of the keeper through the network."""
        if self.network.hinders(call) and self.network.trouble in _BLAMED:
            for entry in call.entries:
                self._blame(entry.lease.message_id, _BLAMED[self.network.trouble])
        self.network.carry(call, partial(self._settle, settle))

    def give_up(self, call: Call) -> bool:
        """Return True: the call was sent, and its answer is delivered when it arrives."""
        del call
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    # -- What disturbs it -----------------------------------------------------------------

    def meet(self, trouble: Trouble) -> None:
        """Disturb the worker."""
        self.troubled_at = self.world.clock()
        if trouble is Trouble.STARVED:
            self._stall()
        elif trouble is Trouble.SOFT_SHUTDOWN:
            self.stop(is_soft=True)
        elif trouble is Trouble.KILLED:
            self._kill()
        elif trouble is Trouble.KILLED_KEPT:
            self._die_kept()
        elif trouble is Trouble.KILLED_AFTER_SUCCESS:
            self.network.trouble = trouble
            self._kill(after_success=True)
        else:
            self.network.trouble = trouble
            self._later(profile.SPELL, self._recover)

    def stop(self, *, is_soft: bool = False) -> None:
        """Start no more tasks. If soft, release the running ones, and let them continue."""
        self.is_stopping = True
        while self._queued:
            self.keeper.release(self._held.pop(self._queued.popleft()).handle, 0, "shutdown")
        for message_id, held in list(self._held.items()) if is_soft else ():
            execution = held.receive.execution
            if execution is not None and execution.ended_at is None:
                execution.is_cut_off = True
                self._blame(message_id, "released-while-running")
                self.keeper.release(held.handle, 0, "shutdown")
                del self._held[message_id]
        self.go_on()
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        if not self.is_up:
            return
        if len(self.keeper) or self._is_stalled() or self._held:
            self._later(1.0, self._end_when_idle)
            return
        if not self.is_dead:
            self.recorder.stop()
        self._end()

    def _stall(self) -> None:
        self._stalled_until = self.world.clock() + profile.STALL
        for lease in self.keeper.leases():
            self._blame(lease.message_id, "keeper-starved")
        self._later(profile.STALL, self._wake)

    def _wake(self) -> None:
        self.recorder.note_late(profile.STALL)
        self.go_on()

    def _recover(self) -> None:
        self.network.trouble = None

    def _kill(self, *, after_success: bool = False) -> None:
        """Die at once, unless the journal does not yet show all that has ended."""
        if after_success and self.world.clock() > self.troubled_at + _KILL_PATIENCE:
            self._recover()
            return
        # Failing deletes write many lines, which should not pile up.
        if (after_success and not self._ending()) or self._is_unwritten():
            self._later(_KILL_POLL, lambda: self._kill(after_success=after_success))
            return
        self._die()

    def _ending(self) -> list[Lease]:
        return [each for each in self.keeper.leases() if each.goal is not Goal.HOLD]

    def _is_unwritten(self) -> bool:
        """Return whether the journal does not yet show all that has ended.

        In a journal, a worker that died before its task ended looks the same as one that died
        between that end and SQS's answer. A journal does not show, either, whether a task whose
        lease was capped continued.
        """
        return any(
            each.goal is Goal.RELEASE or not each.attempts for each in self._ending()
        ) or any(each.status is LeaseStatus.CAPPED for each in self.keeper.leases())

    def _die(self) -> None:
        """Die together with the keeper."""
        for lease in self._ending():
            self._blame(lease.message_id, "died-after-success")
        self._cut_off("died-while-running")
        self.world.leave_poll()
        self._end()

    def _die_kept(self) -> None:
        """Die, and leave the rest to the keeper, whose releases wait for the open poll."""
        self.is_stopping = self.is_dead = True
        self._cut_off("died-while-running")
        for held in self._held.values():
            self.keeper.release(held.handle, profile.POLL, WORKER_DIED)
        self._held.clear()
        self._queued.clear()
        self.world.leave_poll()
        self.go_on()
        self._end_when_idle()

    def _cut_off(self, cause: str) -> None:
        for message_id, held in self._held.items():
            self._blame(message_id, cause)
            execution = held.receive.execution
            if execution is not None:
                execution.ended_at, execution.is_cut_off = self.world.clock(), True

    def _end(self) -> None:
        self.is_up = False
        self.recorder.close()
        self.world.ended(self)

    # -- Its life ----------------------------------------------------------------------------

    def _begin(self, message_id: str) -> None:
        held = self._held[message_id]
        if not self.keeper.owns(held.handle):
            self.keeper.let_expire(held.handle)
            del self._held[message_id]
            return
        self.keeper.note_start(held.handle)
        execution = Execution(self.wid, self.world.clock())
        held.receive.execution, held.receive.is_new = execution, True
        self._running += 1
        seconds = held.profile.run_time(self.world.random)
        self._later(seconds, lambda: self._finish(message_id, execution))

    def _finish(self, message_id: str, execution: Execution) -> None:
        if self.is_up and self._is_stalled():
            self.world.clock.at(self._stalled_until, lambda: self._finish(message_id, execution))
            return
        if self.is_up and self._has_call_under_way(message_id):
            self._later(_ANSWER_POLL, lambda: self._finish(message_id, execution))
            return
        if execution.ended_at is None:
            execution.ended_at = self.world.clock()
        self._running -= 1
        if not self.is_up or execution.is_cut_off:
            return
        held = self._held.pop(message_id)
        is_poisoned = self.world.histories[message_id].is_poisoned
        if is_poisoned or self.world.random.random() < profile.FAILING:
            self.keeper.release(held.handle, 5, "failed")
        else:
            execution.succeeded = True
            self.keeper.done(held.handle)
        self.go_on()

    def _has_call_under_way(self, message_id: str) -> bool:
        """Return whether a call about the message waits for its answer.

        If the task ended now, a slow answer might never appear in the journal.
        """
        held = self._held.get(message_id)
        lease = self.keeper.find(held.handle) if held is not None else None
        return lease is not None and lease.pending is not None

    def _is_stalled(self) -> bool:
        return self.world.clock() < self._stalled_until

    def _later(self, seconds: float, job: Any) -> None:
        self.world.clock.at(self.world.clock() + seconds, job)

    def _step(self, due: float) -> None:
        if due == self._step_at:
            self._step_at = None
            self.go_on()

    def _settle(self, settle: ApplyResults, outcomes: Sequence[Outcome]) -> None:
        if not self.is_up:
            return
        if self._is_stalled():
            self.world.clock.at(self._stalled_until, lambda: self._settle(settle, outcomes))
            return
        settle(outcomes)
        self.go_on()

    def _observe(self, event: Event) -> None:
        self.recorder(event)
        if event.kind is EventKind.LEASE_CAPPED:
            self._blame(event.message_id, "capped")
        elif event.kind is EventKind.PERMISSION_DENIED:
            self._refusing.add(event.queue_url)
            for lease in self.keeper.leases():
                if lease.queue_url == event.queue_url and lease.terms.extend:
                    self._blame(lease.message_id, "not-permitted")
        elif event.kind is EventKind.PERMISSION_GRANTED:
            self._refusing.discard(event.queue_url)
        elif event.kind is EventKind.LEASE_EXTENDED and event.slack > 0:
            execution = self._receives[event.message_id].execution
            if execution is None or not execution.is_cut_off:
                self._blame(event.message_id, None)

    def _blame(self, message_id: str, cause: str | None) -> None:
        self._receives[message_id].mark = cause
