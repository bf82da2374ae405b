"""The rounds of a simulated keeper: its steps, each at its time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from tests.simulation.calls import Host
from tests.simulation.rules import EPSILON

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker

#: Longest sleep of a keeper: it is woken for whatever is due.
LONG = 1e9


class Rounds:
    """Has a keeper make its steps while its process lives."""

    def __init__(self, worker: SimulatedWorker, keeper: ThreadKeeper, host: Host) -> None:
        self._worker = worker
        self._keeper = keeper
        self._host = host
        self._due: float | None = None

    def make(self) -> None:
        """Make a step now, and have the next one made when it is due."""
        due = self._keeper.step()
        if due < LONG / 2 and (self._due is None or due < self._due):
            self._due = due
            # A hair later: the two clocks are added up in another order.
            self._worker.world.clock.at(
                due + self._worker.suspended + EPSILON,
                partial(self._host.run, partial(self._begin, due)),
            )

    def _begin(self, due: float) -> None:
        # Else an earlier one took its place.
        if due == self._due:
            self._due = None
            self._host.go_on()
