"""Calls that the simulated SQS refuses: a policy is being replaced, or a queue is hidden."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.testing import SimulatedSqs, errors
from celery_sqs_heartbeat.testing.errors import SqsError

if TYPE_CHECKING:
    from tests.simulation.world import World

CHANGE, DELETE = "ChangeMessageVisibilityBatch", "DeleteMessageBatch"
#: The operations that are refused together, in worlds that refuse deletes, too.
TOGETHER = ((CHANGE,), (DELETE,), (CHANGE, DELETE))
#: How long a policy is missing, in visibility timeouts; 0 for a single call.
LASTS = (0.0, 0.0, 0.2, 1.0, 5.0)


def refuses_deletes(seed: int) -> bool:
    """Return whether the worlds of a seed refuse deletes. The other worlds stay unchanged."""
    return seed % 5 == 3


class Refusals:
    """A client of the simulated SQS that sometimes refuses a call because of its policy."""

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} refusals")
        self._choice = random.Random(f"{kind} {seed} refused operations")
        self._together = TOGETHER if refuses_deletes(seed) else TOGETHER[:1]
        self._operations: tuple[str, ...] = ()
        self._error: Callable[[str], SqsError] | None = None
        self._until = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._sqs, name)
        operation = name.title().replace("_", "")
        if self._error is None or operation not in self._operations:
            return method
        error = self._error(operation)
        if self._world.clock() >= self._until:
            self._error = None

        def refuse(**request: Any) -> Any:
            raise error.as_client_error(operation)

        return refuse

    @property
    def _sqs(self) -> SimulatedSqs:
        return self._world.sqs

    def plan(self) -> None:
        """Schedule the next refusal. Each refusal schedules the next."""
        world = self._world
        wait = self._random.expovariate(1 / world.profile.disturbance)
        world.clock.at(world.clock() + wait, self._begin)

    def end(self) -> None:
        """Refuse nothing any more."""
        self._error = None

    def _begin(self) -> None:
        world = self._world
        if world.is_over:
            return
        self.plan()
        # In a calm world a lease must outlast the refusal.
        lasts = 0.0 if world.profile.is_calm else self._random.choice(LASTS)
        is_hidden = self._random.random() < 0.3
        self._error = (lambda operation: errors.no_queue()) if is_hidden else errors.denied
        self._operations = self._choice.choice(self._together)
        self._until = world.clock() + lasts * world.profile.terms.visibility_timeout
        if CHANGE in self._operations:
            # The refused call, and the probe that follows it.
            world.tally.visibility_bound += 2
        what = "the queue is hidden" if is_hidden else "a permission is missing"
        if DELETE in self._operations:
            what += ", of deletes too" if CHANGE in self._operations else ", of deletes"
        world.disturb("policy", f"{what} for {'a while' if lasts else 'one call'}")
