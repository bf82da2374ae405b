"""A keeper in its worker's process, as in a consumer without Celery."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Lease
from tests.simulation.calls import Calls
from tests.simulation.observing import EventRules
from tests.simulation.rounds import LONG, Rounds
from tests.simulation.rules import CallRules
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


class Within:
    """The keeper in one process of a worker, with that process as its host."""

    def __init__(self, worker: SimulatedWorker) -> None:
        self._worker = worker
        self.board = Board()
        calls = Calls(worker, CallRules(), self)
        self.keeper = ThreadKeeper(
            calls.sqs,
            interval=LONG,
            clock=worker.now,
            jitter=worker.world.random.random,
            observer=EventRules(worker, self.board).note,
            dispatcher=calls,
            board=self.board,
        )
        self._rounds = Rounds(worker, self.keeper, self)

    @property
    def is_up(self) -> bool:
        """Whether the worker's process has not ended."""
        return self._worker.is_up and self._worker.keeper is self.keeper

    @property
    def worker_is_up(self) -> bool:
        """Whether the worker has not ended, which is the same here."""
        return self.is_up

    def step(self) -> None:
        """Do nothing: the keeper never dies alone."""

    def run(self, job: Callable[[], None]) -> None:
        """Run a job now, or once the worker continues."""
        self._worker.when_awake(self.keeper, job)

    def go_on(self) -> None:
        """Have the worker and its keeper do what is due."""
        self._worker.go_on()

    def keep(self) -> None:
        """Have the keeper do what is due."""
        self._rounds.make()

    def leases(self) -> list[Lease]:
        """Return the leases that the worker holds."""
        return self.board.leases()

    def note_receive(self, lease: Lease) -> None:
        """Do nothing: the keeper knows of the receive at once."""

    def note_pause(self) -> None:
        """Note that the worker stalls, and so does its keeper."""
        for lease in self.leases():
            self._worker.world.truth[lease.message_id].excuses.add("pause")

    def die(self) -> None:
        """The keeper dies with its worker."""

    def end(self) -> None:
        """The keeper ends with its worker."""
