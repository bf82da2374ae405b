"""Calls that no timeout ends: name resolution, credentials, an answer that arrives byte by byte."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases.calls import Call
from celery_sqs_heartbeat.leases.policy import call_patience

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How often a call hangs.
RATE = 0.004
#: For how long, in visibility timeouts, if its answer comes after all.
LASTS = (0.3, 0.8, 1.5, 4.0)


@dataclass(frozen=True)
class Hang:
    """How much longer one call takes in each direction, in seconds; infinity if it never ends.

    Attributes:
        fails_after: When it ends without an answer, in seconds after its sending.
    """

    there: float = 0.0
    back: float = 0.0
    fails_after: float = math.inf


class Hangs:
    """Draws which calls hang."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = random.Random(f"{seed} hangs")
        self._hung: set[str] = set()

    def draw(self, worker: str, call: Call) -> Hang | None:
        """Return how a call hangs, or None for most."""
        world = self._world
        hung_before = worker in self._hung
        self._hung.discard(worker)
        is_spared = world.profile.is_calm and (
            hung_before or _may_cost_a_lease(call) or (world.is_apart and self._is_late(call))
        )
        if world.is_over or is_spared or self._random.random() >= RATE:
            return None
        self._hung.add(worker)
        # The call is repeated once it is given up.
        world.tally.visibility_bound += 1
        seconds = self._random.choice(LASTS) * world.profile.terms.visibility_timeout
        chance = self._random.random()
        if chance < 0.4:
            world.disturb(worker, "a call is never answered")
            return Hang(there=math.inf)
        # If sent late, it may disturb a new owner. That must not happen in a calm world.
        if chance < 0.7 or world.profile.is_calm:
            world.disturb(worker, "a call is answered late")
            return Hang(back=seconds)
        world.disturb(worker, "a call is sent late")
        return Hang(there=seconds)

    def _is_late(self, call: Call) -> bool:
        """Return whether a lease has already lost time because its keeper was away."""
        now = self._world.clock()
        return any(
            entry.lease.expires_at - now < 0.9 * entry.lease.terms.threshold
            for entry in call.entries
        )


def _may_cost_a_lease(call: Call) -> bool:
    """Return whether another fault, before or after this one, may make a lease expire."""
    leases = [entry.lease for entry in call.entries]
    threshold = min(lease.terms.threshold for lease in leases)
    return any(lease.attempts for lease in leases) or call_patience(threshold) > 0.65 * threshold
