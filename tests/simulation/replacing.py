"""Disturbances of the link between a worker and its keeper, and of the keeper's process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.apart import Apart

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

#: How long a message takes over a slow link, and how long the link stays slow, in seconds.
SLOW, SLOW_FOR = (0.2, 1.0, 4.0), 30.0
#: The largest number of steps that a keeper takes before it dies.
STEPS = 12
#: How long a keeper hangs before it is killed, in seconds.
HUNG = (1.0, 1.4)
#: How long a worker stalls, in visibility timeouts. Its keeper does not stall.
STILL = (0.3, 1.5, 5.0)


def plan(world: World, worker: SimulatedWorker) -> None:
    """Schedule the next disturbance of a worker's link. Each disturbance schedules the next."""
    wait = world.process_random.expovariate(1 / world.profile.disturbance)
    world.clock.at(world.clock() + wait, lambda: _disturb(world, worker))


def _disturb(world: World, worker: SimulatedWorker) -> None:
    if world.is_over:
        return
    plan(world, worker)
    keeping = worker.keeping
    if not worker.is_up or not isinstance(keeping, Apart) or keeping.is_away:
        return
    draw, terms = world.process_random, world.profile.terms
    is_calm = world.profile.is_calm
    chance = draw.random()
    if chance < 0.25:
        world.disturb(worker.name, "its link is slow")
        most = terms.threshold / 10 if is_calm else 60.0
        keeping.slow_down(min(most, draw.choice(SLOW)), SLOW_FOR)
    elif chance < 0.45:
        world.disturb(worker.name, "its interpreter stalls")
        worker.pause(draw.choice(STILL) * terms.visibility_timeout, is_suspend=False)
    elif chance < 0.5 and not is_calm:
        world.disturb(worker.name, "its keepers die before they are ready")
        keeping.kill_at_start(draw.randint(1, 3))
    elif chance < 0.8:
        aims_at_release = draw.random() < 0.6
        at = "a release" if aims_at_release else "a step"
        world.disturb(worker.name, f"its keeper is killed at {at}")
        keeping.kill(
            draw.randrange(STEPS // 2 if aims_at_release else STEPS),
            lambda: _can_be_missed(world, worker, keeping),
            aims_at_release=aims_at_release,
        )
    elif _can_be_missed(world, worker, keeping):
        world.disturb(worker.name, "its keeper hangs")
        most = terms.threshold / 10 if is_calm else 60.0
        keeping.hang(min(most, draw.uniform(*HUNG)))


def _can_be_missed(world: World, worker: SimulatedWorker, keeping: Apart) -> bool:
    """Return whether a keeper may die. In a calm world, only if no lease has lost time already.

    Nor if the queue's timeout has become so short that a lease may end before the next keeper.
    """
    if not world.profile.is_calm:
        return True
    now, threshold = world.clock(), world.profile.terms.threshold
    is_awake = now >= worker.paused_until
    has_time = all(
        not lease.attempts and lease.terms.threshold >= threshold
        for lease in keeping.board.leases()
    )
    waits = now - keeping.process.calls.oldest()
    return is_awake and has_time and waits <= threshold / 10
