"""Acks that kombu makes itself: the message is deleted before the keeper hears of it."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.liveness import LOOK_SECONDS
from celery_sqs_heartbeat.testing.errors import SqsError
from tests.simulation.truth import Execution

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

#: One world in so many has such acks. The others stay unchanged, and so do the seeds that once
#: broke an invariant.
EVERY, REST = 12, 11
#: How often a message is acked inline in those worlds.
RATE = 0.5
#: What must not be reported about a message after its ack.
_ALARMS = frozenset({EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST, EventKind.LEASE_CAPPED})


class InlineAcks:
    """Acks some messages inline, unless message groups are kept in order: those never are."""

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"inline acks of {kind} {seed}")
        self._is_met = seed % EVERY == REST and not world.order.is_kept
        self._acked: set[str] = set()

    def draw(self) -> bool:
        """Return whether a message is acked inline."""
        return self._is_met and self._random.random() < RATE

    def ack(self, worker: SimulatedWorker, execution: Execution) -> None:
        """Ack a message as a channel does: the lease ends, and kombu deletes the message."""
        world, keeper, handle = self._world, worker.keeper, execution.handle
        if keeper.find(handle) is None:
            return
        world.disturb(worker.name, "acks inline")
        self._acked.add(handle)
        keeper.note_ack(handle)
        queue = world.truth[execution.message_id].queue
        # A FIFO queue refuses a handle that has expired.
        with suppress(SqsError):
            queue.delete(handle, world.clock())
        if isinstance(keeper, LinkedKeeper):
            # The attendant's thread sends what waits.
            world.clock.at(
                world.clock() + LOOK_SECONDS, partial(worker.when_awake, keeper, keeper.push)
            )

    def check(self, receipt_handle: str, kind: EventKind) -> None:
        """Check that an event raises no alarm about a message that was acked."""
        if kind in _ALARMS and receipt_handle in self._acked:
            self._world.fail(f"a {kind.value} is reported after the ack of {receipt_handle}")

    def check_release(self, receipt_handle: str) -> None:
        """Check that a message that was acked is not released."""
        if receipt_handle in self._acked:
            self._world.fail(f"10: {receipt_handle} is released after its ack")
