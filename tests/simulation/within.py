"""A keeper in its worker's process, as in a consumer without Celery."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.receiving.intake import Intake
from celery_sqs_heartbeat.receiving.reception import MessageSender
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues
from tests.simulation.calls import LONG, Calls, Rounds
from tests.simulation.link import SimulatedChannel
from tests.simulation.reception import SimulatedReception, WatchedKeeper
from tests.simulation.rules import CallRules, EventRules
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


class Within:
    """The keeper in one process of a worker, with that process as its host.

    Attributes:
        reads_last_poll: Whether a worker that ends waits for its open polls.
    """

    reads_last_poll = True
    #: The keeper hears its worker, and hands messages over without a channel.
    is_away = is_stuck = False

    def __init__(self, worker: SimulatedWorker) -> None:
        self.worker = worker
        self._world = worker.world
        self.board = Board()
        calls = Calls(self, CallRules())
        self.keeper = ThreadKeeper(
            calls.sqs,
            interval=LONG,
            clock=worker.now,
            jitter=worker.world.random.random,
            observers=[EventRules(self).note],
            dispatcher=calls,
            board=self.board,
        )
        self._rounds = Rounds(self, self.keeper)
        watched = WatchedKeeper(self, self.keeper)
        leases: Any = self
        sender = MessageSender(self.keeper, calls.send_again, lambda job: job())
        self.reception = SimulatedReception(self, watched, sender, leases)
        self.leased = LeasedQueues(*self._world.attributes.known_to(worker), Mock(), Mock())
        self._channel = 0

    @property
    def is_up(self) -> bool:
        """Whether the worker's process has not ended."""
        return self.worker.is_up and self.worker.keeper is self.keeper

    @property
    def is_ending(self) -> bool:
        """Whether nothing more must be received."""
        return self.worker.is_stopping

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

    def work(self) -> None:
        """Have the keeper do what is due."""
        self._rounds.make()
        self.receive()

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
        self.reception.abandon()

    def end(self) -> None:
        """The keeper ends with its worker."""
        self.reception.has_finished = True

    # -- Receiving --------------------------------------------------------------------------

    def open_channel(self) -> None:
        """Receive for a new channel."""
        self._channel += 1
        self._consume()

    def close_channel(self) -> None:
        """Lose the channel, and abandon its polls."""
        self.reception.close(self._channel)

    def end_receiving(self) -> None:
        """Receive no more."""
        self.reception.end()

    def finish(self) -> bool:
        """Return whether nothing is left to do for a worker whose tasks have ended."""
        is_reading = self.reception.is_reading and self.reads_last_poll
        return not self.keeper.ending and not is_reading

    def receive(self) -> None:
        """Have messages handed over and received, as there is room for them."""
        if self._world.attributes.changes or self._world.starting.is_met:
            self._consume()
        if not self.worker.is_stopping:
            prefetch = self._world.profile.prefetch
            limit = self._intake._handed_over + prefetch - self._held
            self.reception.allow(self._channel, limit, prefetch)
        self.reception.look()

    def free(self, _arrived: Arrived) -> None:
        """Do nothing: the worker says soon what room there is."""

    def takes_slot(self, _arrived: Arrived) -> bool:
        """Return False: no slot is counted here."""
        return False

    @property
    def room(self) -> int:
        """For how many more messages there is room."""
        held_back = self._intake.free - self._intake.room
        return self._world.profile.prefetch - self._held - held_back

    @property
    def has_polls(self) -> bool:
        """Whether a poll is open."""
        return bool(self.reception.polls)

    @property
    def _intake(self) -> Intake:
        return self.reception._receivers[self._channel].intake

    @property
    def _held(self) -> int:
        return len(self.worker.queued) + len(self.worker.running)

    def _consume(self) -> None:
        options: Any = SimulatedChannel
        queues = [self.leased.consumed(each.url, each.url, options) for each in self._world.queues]
        self.reception.consume(self._channel, queues)

    # -- What its reception calls -----------------------------------------------------------

    def deliver(self, _channel: int, messages: list[Arrived]) -> int:
        """Hand messages over to the worker."""
        for arrived in messages:
            self.worker.take(arrived)
            self.worker.check_held(self._held)
        return 0

    def keep(self, messages: list[Arrived]) -> None:
        """Do nothing: the worker's process has them."""
