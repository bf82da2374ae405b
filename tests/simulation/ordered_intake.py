"""How a worker handles a batch of messages whose groups are kept in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.leases.actions import is_confirmed
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.group_waitlist import GroupWaitlist, tag_of
from celery_sqs_heartbeat.transport.skipped_groups import SkippedGroups

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker

#: How often it checks whether an extension was confirmed, in seconds.
CONFIRM_LOOK_SECONDS = 0.25
#: How often a worker checks whether a message's turn has come, in visibility timeouts. A real
#: worker checks every second. That would find nothing more here, and would take many events.
LOOK_PART = 0.1


@dataclass(eq=False)
class _Batch:
    """The new messages of one answer. Some wait until an extension is confirmed."""

    queue: str
    left: deque[dict[str, Any]]
    timeout: int
    age: float
    asked_at: float
    kept: list[dict[str, Any]] = field(default_factory=list)


class OrderedIntake:
    """Leases, confirms, holds back and delivers messages, as `Leaser` and `Deliverer` do.

    It belongs to one process of a worker.

    Args:
        deliver: Receives each message when it may run.
    """

    def __init__(self, worker: SimulatedWorker, deliver: Callable[[dict[str, Any]], None]) -> None:
        self._worker = worker
        self._world = worker.world
        self._keeper = worker.keeper
        self._deliver = deliver
        self._batches: list[_Batch] = []
        #: The lease of each delivered message by its handle, as the message's request knows it.
        self._leases: dict[str, Lease | None] = {}
        self._groups = GroupWaitlist(keeper=self._keeper, limit=self._world.order.waiting)
        self._groups.call_soon = self._call_soon
        if isinstance(self._keeper, LinkedKeeper):
            self._keeper.on_turn = self._groups.wake
        self._looks = False

    @property
    def held(self) -> int:
        """How many prefetch slots its messages take, or will take."""
        arriving = sum(len(batch.left) + len(batch.kept) for batch in self._batches)
        return arriving + self._groups.next_up

    @property
    def most_wanted(self) -> int:
        """How many messages a receive may return."""
        return self._groups.most_wanted

    def take(
        self, url: str, messages: Iterable[dict[str, Any]], timeout: int | None, sent_at: float
    ) -> None:
        """Lease the messages of a poll, and deliver those that may run."""
        worker, cut = self._worker, SkippedGroups()
        fresh: list[dict[str, Any]] = []
        for message in messages:
            receipt = worker.lease(url, message, timeout, sent_at)
            if receipt is ReceivedAs.NEW and (worker.is_stopping or not cut.takes(message)):
                fresh.append(message)
            elif receipt in (ReceivedAs.LAPSED, ReceivedAs.RELEASED):
                cut.cut(message)
        cut.release(self._keeper)
        if worker.is_stopping:
            for message in reversed(fresh):
                self._world.disturb(worker.name, "last poll brings a message")
                self._keeper.release(message["ReceiptHandle"], cause="not delivered")
        elif fresh:
            now = worker.now()
            self._batches.append(_Batch(url, deque(fresh), timeout or 0, now - sent_at, now))
            self._go_through(self._batches[-1])

    def may_begin(self, handle: str) -> bool:
        """Return whether a task may begin, as `LeasedRequest` decides it."""
        lease = self._leases.pop(handle)
        if lease is None:
            return True
        if self._keeper.find(handle) is not lease or lease.goal is not Goal.HOLD:
            self._world.disturb(self._worker.name, "starts no task whose message was released")
            return False
        if self._keeper.owns(handle):
            return True
        self._world.disturb(self._worker.name, "loses a lease before its task starts")
        self._keeper.disown(handle)
        return False

    def wake(self) -> None:
        """Look for messages whose turn has come. A keeper in the worker's process reports none."""
        if not isinstance(self._keeper, LinkedKeeper):
            self._groups.wake()

    def leave(self, cause: str) -> None:
        """Release all messages that are not delivered yet."""
        self._groups.leave(cause)
        for batch in self._batches:
            for message in reversed([*batch.kept, *batch.left]):
                self._keeper.release(message["ReceiptHandle"], cause="not delivered")
        self._batches.clear()

    # -- Inside ------------------------------------------------------------------------------

    def _go_through(self, batch: _Batch) -> None:
        """Deliver a batch once we know of each message whether it is ours."""
        while batch in self._batches and batch.left:
            is_ours = self._is_still_ours(batch, batch.left[0]["ReceiptHandle"])
            if is_ours is None:
                later = self._world.clock() + CONFIRM_LOOK_SECONDS
                self._at(later, partial(self._go_through, batch))
                return
            message = batch.left.popleft()
            if is_ours:
                batch.kept.append(message)
        if batch in self._batches:
            self._batches.remove(batch)
            self._hand_on(batch)

    def _is_still_ours(self, batch: _Batch, handle: str) -> bool | None:
        """Return whether a message is certainly ours for long enough; None while unknown."""
        lease = self._keeper.find(handle)
        if lease is None or lease.goal is not Goal.HOLD:
            return False
        if batch.age + lease.terms.threshold <= batch.timeout:
            return True
        now = self._worker.now()
        is_ours = is_confirmed(lease, now)
        if is_ours is None and now < batch.asked_at + max(1.0, lease.terms.threshold):
            return None
        if not is_ours:
            self._world.disturb(self._worker.name, "drops a message that no extension confirmed")
            self._keeper.let_expire(handle)
        return bool(is_ours)

    def _hand_on(self, batch: _Batch) -> None:
        payloads = [
            {"properties": {"delivery_tag": message["ReceiptHandle"]}, "message": message}
            for message in batch.kept
        ]
        ready = self._groups.hold_back(payloads, queue=batch.queue, deliver=self._take_turn)
        if len(self._groups) > self._world.order.most_waiting:
            self._world.fail(f"{len(self._groups)} messages wait on {self._worker.name}")
        for payload in ready:
            self._pass(payload)
        self._look_later()
        self._worker.go_on()

    def _take_turn(self, payload: dict[str, Any]) -> None:
        self._world.log(self._worker.name, "has come to its turn", payload["message"]["MessageId"])
        self._pass(payload)

    def _pass(self, payload: dict[str, Any]) -> None:
        handle = tag_of(payload)
        self._leases[handle] = self._keeper.find(handle)
        self._deliver(payload["message"])

    def _call_soon(self, deliver_due: Callable[[], object]) -> None:
        self._at(self._world.clock(), partial(self._run, deliver_due))

    def _run(self, deliver_due: Callable[[], object]) -> None:
        waiting = len(self._groups)
        deliver_due()
        if len(self._groups) < waiting:
            self._worker.go_on()

    def _look_later(self) -> None:
        if self._groups and not self._looks:
            self._looks = True
            timeout = self._world.profile.terms.visibility_timeout
            self._at(self._world.clock() + LOOK_PART * timeout, self._look)

    def _look(self) -> None:
        self._looks = False
        self._groups.look()
        self._look_later()

    def _at(self, time: float, job: Callable[[], None]) -> None:
        self._world.clock.at(time, partial(self._worker.when_awake, self._keeper, job))
