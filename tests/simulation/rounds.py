"""The ticks of a simulated keeper: each step at its time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from tests.simulation.calls import Host
from tests.simulation.rules import EPSILON

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker

#: The longest sleep of a keeper. It is woken for anything that is due.
LONG = 1e9


class Rounds:
    """Makes a keeper take its steps while its process lives."""

    def __init__(self, worker: SimulatedWorker, keeper: ThreadKeeper, host: Host) -> None:
        self._worker = worker
        self._keeper = keeper
        self._host = host
        self._due: float | None = None

    def make(self) -> None:
        """Take a step now, and schedule the next one for when it is due."""
        due = self._keeper.step()
        self._worker.world.outage.note_stuck(self._keeper, self._host.board)
        if due < LONG / 2 and (self._due is None or due < self._due):
            self._due = due
            # A tiny bit later, because the two clocks add up their times in a different order.
            self._worker.world.clock.at(
                due + self._worker.suspended + EPSILON,
                partial(self._host.run, partial(self._begin, due)),
            )

    def _begin(self, due: float) -> None:
        # Otherwise an earlier one has taken its place.
        if due == self._due:
            self._due = None
            self._host.go_on()
