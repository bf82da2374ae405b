"""Runs worlds until they add up to the requested hours, or runs one failed world again.

python -m tests.simulation --hours 20000
python -m tests.simulation --replay storm 17
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.simulation.runner import replay, simulate


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
