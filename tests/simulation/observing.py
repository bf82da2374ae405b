"""Compares a keeper's events with the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.receiving.intake import CLOSED
from tests.simulation.receives import LOST
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


class EventRules:
    """Receives every event of one keeper."""

    def __init__(self, worker: SimulatedWorker, board: Board) -> None:
        self._worker = worker
        self._world = worker.world
        self._board = board

    def note(self, event: Event) -> None:
        """Check an event, and note the duplicates or losses that it explains."""
        truth = self._world.truth[event.message_id]
        self._world.log(self._worker.name, event.kind.value, event.message_id)
        if event.kind is EventKind.MESSAGE_DELETED:
            self._check_deleted(event)
            if event.cause:
                self._world.receives.explain(event.message_id, self._worker.name, event.cause)
        if event.kind is EventKind.LEASE_CAPPED:
            truth.excuses.add("capped")
            self._check_capped(event)
        elif event.kind in (EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST):
            truth.excuses.add(event.kind.value)
            if event.kind is EventKind.LEASE_LOST and self._world.order.is_kept:
                # It may have waited in the keeper for another of its group.
                self._world.receives.explain(event.message_id, self._worker.name, LOST)
        elif event.kind in (EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING):
            cause = event.cause or "released without a cause"
            self._world.receives.explain(event.message_id, self._worker.name, cause)
            *_, last = truth.receives.values()
            last.is_cold = not self._worker.is_up or (last.is_taken and cause == CLOSED)

    def _check_deleted(self, event: Event) -> None:
        # A standard queue answers a stale handle as if it had deleted the message.
        if event.outcome is not Outcome.DONE and not self._world.truth[event.message_id].is_deleted:
            self._world.fail(f"1: {event.message_id} is reported as deleted, but is in its queue")

    def _check_capped(self, event: Event) -> None:
        for lease in self._board.leases():
            if lease.message_id == event.message_id and self._world.profile.is_calm:
                left = policy.lease_end(lease) - self._worker.now()
                if left > lease.terms.visibility_timeout:
                    self._world.fail(f"4: {event.message_id} is capped {left:.0f} s too early")
