"""Runs worlds until they add up to the requested hours, or runs one failed world again.

python -m tests.simulation --hours 20000
python -m tests.simulation --replay storm 17
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from collections import Counter
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


def main() -> int:
    """Run the command line; exit with status 1 when an invariant does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1_000, help="simulated worker-hours")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--replay", nargs=2, metavar=("KIND", "SEED"))
    options = parser.parse_args()
    # Messages that the net gives up are counted with the disturbances.
    logging.disable(logging.ERROR)
    if options.replay:
        return replay(options.replay[0], int(options.replay[1]))
    began = time.monotonic()
    tally, seeds, failure = simulate(options.hours, options.seed)
    sys.stdout.write(
        f"{tally.worker_hours:,.0f} simulated worker-hours, {tally.events:,} events, "
        f"{seeds} seeds, {time.monotonic() - began:.0f} s\n"
        f"{tally.messages:,} messages, {tally.executions:,} executions, of which "
        f"{tally.overlaps:,} overlap and {tally.repeats:,} repeat, each with a cause:\n"
    )
    sys.stdout.write(
        f"  {tally.visibility_calls:,} visibility calls; {tally.visibility_bound:,.0f} bound them "
        "where nothing fails\n"
    )
    _write_counts(tally.causes)
    sys.stdout.write("Receives that led to no execution:\n")
    _write_counts(tally.idle_receives)
    sys.stdout.write("Disturbances:\n")
    _write_counts(tally.disturbances)
    if failure is not None:
        sys.stdout.write(failure)
        return 1
    return 0


def _write_counts(counts: Counter[str]) -> None:
    for name, count in counts.most_common():
        sys.stdout.write(f"  {count:7,} {name}\n")


if __name__ == "__main__":
    sys.exit(main())
