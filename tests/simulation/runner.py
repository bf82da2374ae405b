"""Runs many worlds, and reports a failed one with the command that reproduces it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from tests.simulation.profile import KINDS
from tests.simulation.truth import Tally
from tests.simulation.world import World

#: How many lines of a failed world's trace the report shows.
SHOWN_LINES = 60


def simulate(
    hours: float, seed: int = 0, kinds: Sequence[str] = KINDS
) -> tuple[Tally, int, str | None]:
    """Run worlds, one of each kind per seed, until they add up to the requested hours.

    Returns:
        The counts, how many seeds were run, and the report of the first failure.
    """
    total, first = Tally(), seed
    while total.worker_hours < hours:
        for kind in kinds:
            world = World(kind, seed)
            try:
                total.add(world.run())
            except Exception as error:
                return total, seed - first + 1, report(world, kind, seed, error)
        seed += 1
    return total, seed - first, None


def report(world: World, kind: str, seed: int, error: Exception) -> str:
    """Return the failure, the trace of the messages that it names, and how to reproduce it."""
    named = [message_id for message_id in world.truth if message_id in str(error)]
    lines = [
        f"{at:14.3f}  {who:4} {what:24} {message_id[:8]}"
        for at, who, what, message_id in world.trace
        if not named or not message_id or message_id in named
    ]
    text = re.sub(r"([0-9a-f]{8})-[0-9a-f-]{27}", r"\1", str(error))
    shown = "\n".join(lines[-SHOWN_LINES:])
    return (
        f"\n{type(error).__name__}: {text}\nat {world.clock():.3f} s of {world.profile}\n{shown}\n"
        f"Replay it: python -m tests.simulation --replay {kind} {seed}\n"
    )


def replay(kind: str, seed: int) -> int:
    """Run one world again, and show its failure if it still fails."""
    world = World(kind, seed)
    try:
        world.run()
    except Exception as error:
        sys.stdout.write(report(world, kind, seed, error))
        return 1
    sys.stdout.write(f"{kind} {seed} holds\n")
    return 0
