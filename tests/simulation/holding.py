"""A server that executes changes of visibility late, but still answers polls."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases.calls import Call, CallKind
from tests.simulation.hangs import Hang

if TYPE_CHECKING:
    from tests.simulation.world import World

#: One world in so many has such a server, and a queue whose timeout changes.
EVERY, REST = 8, 1
#: How often while a world lasts, and for how long, in visibility timeouts. Leases expire, and their
#: workers receive the messages again, before the server executes the calls.
TIMES, LASTS = 20, (0.6, 1.2, 2.5)


class Holding:
    """Draws when the server holds changes of visibility, and how long it holds each one."""

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} holding")
        self._until = 0.0
        if seed % EVERY == REST and not world.profile.is_calm:
            self._plan()

    def draw(self, worker: str, call: Call) -> Hang | None:
        """Return how a call is held, or None."""
        left = self._until - self._world.clock()
        if left <= 0 or self._world.is_over or call.kind is not CallKind.CHANGE_VISIBILITY:
            return None
        self._world.disturb(worker, "a change of visibility is held")
        later = self._random.uniform(0, 0.5) * self._world.profile.terms.visibility_timeout
        ends_by_itself = self._random.random() < 0.5
        fails_after = self._world.profile.call_timeout if ends_by_itself else math.inf
        return Hang(there=left + later, fails_after=fails_after)

    def _plan(self) -> None:
        wait = self._random.expovariate(TIMES / self._world.profile.seconds)
        self._world.clock.at(self._world.clock() + wait, self._begin)

    def _begin(self) -> None:
        if self._world.is_over:
            return
        self._plan()
        self._world.disturb("queue", "holds changes of visibility")
        lasts = self._random.choice(LASTS) * self._world.profile.terms.visibility_timeout
        self._until = self._world.clock() + lasts
