"""Disturbances of workers at random times of a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World


def plan(world: World, worker: SimulatedWorker) -> None:
    """Schedule the next disturbance of a worker. Each disturbance schedules the next."""
    wait = world.random.expovariate(1 / world.profile.disturbance)
    world.clock.at(world.clock() + wait, lambda: _disturb(world, worker))


def _disturb(world: World, worker: SimulatedWorker) -> None:
    if world.is_over:
        return
    plan(world, worker)
    if not worker.is_up:
        return
    timeout = world.profile.terms.visibility_timeout
    chance = world.random.random()
    if chance < 0.25:
        worker.crash()
    elif chance < 0.45:
        worker.stop()
    elif chance < 0.6 or world.profile.is_calm:
        worker.reconnect()
    else:
        seconds = world.random.choice((0.1, 0.5, 1.5, 6.0)) * timeout
        worker.pause(seconds, is_suspend=chance > 0.85)
