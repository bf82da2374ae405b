"""A busy machine, where time passes between the planning of a call and its sending."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

#: One world in so many has such machines.
EVERY, REST = 8, 5
#: How often a call is delayed, and for how long, in visibility timeouts.
RATE, LASTS = 0.4, (0.02, 0.05, 0.1, 0.3)


class Delayed:
    """Draws how long a call waits for a CPU, or for its client, before it is sent."""

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} delayed")
        self._is_met = seed % EVERY == REST and not world.profile.is_calm

    def draw(self, worker: str) -> float:
        """Return how many seconds a call waits before it is sent; 0 for most calls."""
        if not self._is_met or self._world.is_over or self._random.random() >= RATE:
            return 0.0
        self._world.disturb(worker, "a call waits before it is sent")
        # The call is repeated once it is given up.
        self._world.tally.visibility_bound += 1
        return self._random.choice(LASTS) * self._world.profile.terms.visibility_timeout
