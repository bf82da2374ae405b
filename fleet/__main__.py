"""Writes the journal of a synthetic fleet: `python -m fleet OUT --workers 20 --hours 4`."""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path

from fleet.generator import make_fleet


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m fleet", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder for journal/ and truth.jsonl")
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--hours", type=float, default=4.0, help="simulated hours")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--copies", type=int, default=1, help="copies of all workers and messages")
    options = parser.parse_args()
    began = time.monotonic()
    made = make_fleet(
        options.out,
        workers=options.workers,
        hours=options.hours,
        seed=options.seed,
        copies=options.copies,
    )
    sys.stdout.write(
        f"{made.messages:,} messages, {made.lines:,} lines of {made.workers:,} workers, "
        f"{len(made.pairs):,} duplicates, {time.monotonic() - began:.1f} s\n"
    )
    for cause, count in collections.Counter(str(pair["cause"]) for pair in made.pairs).items():
        sys.stdout.write(f"  {count:7,} {cause}\n")


if __name__ == "__main__":
    main()
