"""A server that stalls for a worker that has just started."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT
from tests.simulation.hangs import Hang

if TYPE_CHECKING:
    from tests.simulation.world import World

#: One world of either kind in so many has this server.
EVERY, REST = 8, 2
#: How often the server stalls at a start, and for how long, in visibility timeouts.
RATE, LASTS = 0.6, (0.1, 0.5, 1.5, 4.0)
#: The threshold of leases that begin before the attributes are known, in seconds.
THRESHOLD = DEFAULT_VISIBILITY_TIMEOUT / 3


def may_stall(seed: int) -> bool:
    """Return whether a seed's worlds have this server."""
    return seed % EVERY == REST


class Starting:
    """Draws for how long the server executes no call of a worker that starts.

    Calls that are sent meanwhile are executed later, even if no one waits for them any more.
    """

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} starting")
        self._until: dict[str, float] = {}
        self.is_met = may_stall(seed)

    def begin(self, worker: str) -> None:
        """Note that a process of a worker starts."""
        world = self._world
        if not self.is_met or world.is_over or self._random.random() >= RATE:
            return
        world.disturb(worker, "starts while the server is stalled")
        lasts = self._random.choice(LASTS) * world.profile.terms.visibility_timeout
        self._until[worker] = world.clock() + lasts

    def left(self, worker: str) -> float:
        """Return for how many more seconds the server stalls."""
        return max(0.0, self._until.get(worker, 0.0) - self._world.clock())

    def draw(self, worker: str, _call: object = None) -> Hang | None:
        """Return how a call is delayed, or None."""
        if not (left := self.left(worker)):
            return None
        # The call is repeated once it is given up.
        self._world.tally.visibility_bound += 1
        return Hang(there=left, fails_after=self._world.profile.call_timeout)
