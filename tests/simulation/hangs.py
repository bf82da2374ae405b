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
#: The same for a call that repeats one that failed.
RATE_AGAIN = 0.2
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
        #: Until when a worker uses connections that a firewall has forgotten.
        self._forgotten: dict[str, float] = {}

    def draw(self, worker: str, call: Call) -> Hang | None:
        """Return how a call hangs, or None for most."""
        world = self._world
        is_spared = world.profile.is_calm and (
            _may_cost_a_lease(call) or (world.is_apart and self._is_late(call))
        )
        if world.is_over or is_spared:
            return None
        timeout = world.profile.call_timeout
        if world.clock() < self._forgotten.get(worker, 0.0):
            return Hang(there=math.inf, fails_after=timeout)
        is_again = any(entry.lease.attempts == 1 for entry in call.entries)
        if self._random.random() >= (RATE_AGAIN if is_again else RATE):
            return None
        # The call is repeated once it is given up.
        world.tally.visibility_bound += 1
        seconds = self._random.choice(LASTS) * world.profile.terms.visibility_timeout
        chance = self._random.random()
        if chance < 0.2:
            world.disturb(worker, "its connections are forgotten")
            # The first call that fails shows it, and the next one uses a new connection.
            self._forgotten[worker] = world.clock() + timeout
            return Hang(there=math.inf, fails_after=timeout)
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
    """Return whether a lease may expire if this call and the next one hang."""
    leases = [entry.lease for entry in call.entries]
    threshold = min(lease.terms.threshold for lease in leases)
    is_short = call_patience(threshold) > 0.34 * threshold
    return is_short or any(lease.attempts > 1 for lease in leases)
