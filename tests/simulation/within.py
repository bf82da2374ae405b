"""A keeper in its worker's process, as in a consumer without Celery."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.message import Message
from celery_sqs_heartbeat.leases.service import SQS
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived, GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import Intake
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.simulation.calls import Calls
from tests.simulation.consumer import Consumer
from tests.simulation.looking import next_look
from tests.simulation.observing import EventRules
from tests.simulation.rounds import LONG, Rounds
from tests.simulation.rules import CallRules
from tests.simulation.watching import WatchedKeeper
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


class Within:
    """The keeper in one process of a worker, with that process as its host.

    Attributes:
        reads_last_poll: Whether a worker that ends waits for its open polls.
    """

    reads_last_poll = True

    def __init__(self, worker: SimulatedWorker) -> None:
        self.worker = worker
        self._world = worker.world
        self.board = Board()
        calls = Calls(worker, CallRules(), self)
        self.keeper = ThreadKeeper(
            calls.sqs,
            interval=LONG,
            clock=worker.now,
            jitter=worker.world.random.random,
            observers=[EventRules(worker, self.board).note],
            dispatcher=calls,
            board=self.board,
        )
        self._rounds = Rounds(worker, self.keeper, self)
        self._watched: Any = WatchedKeeper(
            worker, self.keeper, self.board, lambda: worker.is_stopping
        )
        self._lock = threading.RLock()
        self._waitlist = GroupWaitlist(keeper=self._watched, limit=self._world.order.waiting)
        self._looks_at: float | None = None

    @property
    def is_up(self) -> bool:
        """Whether the worker's process has not ended."""
        return self.worker.is_up and self.worker.keeper is self.keeper

    @property
    def worker_is_up(self) -> bool:
        """Whether the worker has not ended, which is the same here."""
        return self.is_up

    def step(self) -> None:
        """Do nothing: the keeper never dies alone."""

    def run(self, job: Callable[[], None]) -> None:
        """Run a job now, or once the worker continues."""
        self.worker.when_awake(self.keeper, job)

    def go_on(self) -> None:
        """Have the worker and its keeper do what is due."""
        self.worker.go_on()

    def keep(self) -> None:
        """Have the keeper do what is due."""
        self._rounds.make()
        self.allow()

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease of a handle, as the keeper knows it."""
        return self.keeper.find(receipt_handle)

    def leases(self) -> list[Lease]:
        """Return the leases that the worker holds."""
        return self.board.leases()

    def note_pause(self) -> None:
        """Note that the worker stalls, and so does its keeper."""
        for lease in self.leases():
            self._world.truth[lease.message_id].excuses.add("pause")

    def die(self) -> None:
        """The keeper dies with its worker."""

    def end(self) -> None:
        """The keeper ends with its worker."""

    # -- Receiving --------------------------------------------------------------------------

    def open_channel(self) -> None:
        """Receive for a new channel."""
        self._handed_over = 0
        self._intake = Intake(
            keeper=self._watched,
            waitlist=self._waitlist,
            lock=self._lock,
            hand_over=self._hand_over,
            keep=lambda messages: None,
            release_one=lambda message, cause: self._watched.release(
                message["ReceiptHandle"], cause=cause
            ),
        )
        self._consumers = [Consumer(self, queue) for queue in self._world.queues]

    def close_channel(self) -> None:
        """Lose the channel, and abandon its polls."""
        self.end_receiving("consumer closed")

    def end_receiving(self, cause: str = "shutdown") -> None:
        """Hand no more messages over."""
        self._intake.end([queue.url for queue in self._world.queues], cause)

    def read_last_polls(self) -> None:
        """Read the open polls to their end."""
        if self.reads_last_poll:
            for consumer in self._consumers:
                consumer.end()

    def finish(self) -> bool:
        """Return whether nothing is left to do for a worker whose tasks have ended."""
        return not self.keeper.ending and not any(each.is_reading for each in self._consumers)

    def receive(self) -> None:
        """Poll where there is room."""
        self._set_limit()
        for consumer in self._consumers if not self.keeper.health.late else ():
            while consumer.wants_poll(left := self._intake.room - self.requested):
                consumer.poll(max(1, min(left, self._most_wanted())))

    @property
    def requested(self) -> int:
        """How many messages its open polls may return."""
        return sum(consumer.requested for consumer in self._consumers)

    def _most_wanted(self) -> int:
        is_ordered = self._world.order.is_kept
        return (
            min(SQS.most_received, self._waitlist.most_wanted) if is_ordered else SQS.most_received
        )

    def take(self, queue: ConsumedQueue, messages: list[Message], sent_at: float) -> None:
        """Take the messages of a poll in."""
        if messages:
            self._intake.take(queue, messages, sent_at=sent_at)
        self._world.order.check_waiting(self.worker.name, len(self._waitlist))
        self._look_later()
        self.worker.go_on()

    def allow(self) -> None:
        """Have messages handed over, as a slot is free, or at a message's turn."""
        if not self.worker.is_stopping:
            self._set_limit()
            self._intake.look()
            self._look_later()

    def _set_limit(self) -> None:
        self._intake.allow(self._handed_over + self.worker.free())

    def _hand_over(self, messages: list[Arrived]) -> int:
        self._handed_over += len(messages)
        for arrived in messages:
            self.worker.take(arrived)
        return 0

    def _look_later(self) -> None:
        wait = next_look(self._world, self._intake.is_unsure, len(self._waitlist))
        if wait is None:
            return
        due = self._world.clock() + wait
        if self._looks_at is None or due < self._looks_at:
            self._looks_at = due
            job = partial(self._look_at, due)
            self._world.clock.at(due, partial(self.worker.when_awake, self.keeper, job))

    def _look_at(self, due: float) -> None:
        # Otherwise an earlier look has taken its place.
        if due == self._looks_at:
            self._looks_at = None
            self.allow()
            self.worker.go_on()
