"""Measures the cost of tasks with a countdown: a stock worker, one that holds, one that parks.

The workers take turns. Each gets the same tasks on its own queue, from the same server (ministack,
behind a proxy that counts calls), and holds or parks all of them before the first is due. Memory is
the proportional set size of the worker, its pool and its keeper's process. Calls are counted while
all tasks wait, and extrapolated to an hour. The delay is the time from a task's ETA to its start.

    python -m benchmarks.etas
    python -m benchmarks.etas --tasks 500 --countdown 70 --spread 9 --timeout 30 --kinds held parked

The countdown must leave time to receive all tasks, and then more than `hold_eta`. Otherwise the
last ones are held, not parked.

The stock worker does not extend. So its queue gets a visibility timeout longer than the countdown.
Otherwise each task would run several times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.eta_rounds import KINDS, EtaBench, Result
from tests.support.proxy import FaultProxy
from tests.support.servers import MinistackServer

HOUR = 3600
ROWS = (
    "received before the first was due",
    "in so many seconds",
    "memory before, MiB",
    "memory while they wait, MiB",
    "calls until all wait",
    "calls a second while they wait",
    "calls in an hour of that",
    "runs too many",
    "earliest start, s after the ETA",
    "median",
    "99th percentile",
    "latest",
)


def row(result: Result, tasks: int) -> list[str]:
    """Return the values of the table, in the order of `ROWS`."""
    percentiles = statistics.quantiles(result.delays, n=100)
    rate = sum(result.waiting.values()) / result.waited
    return [
        f"{result.received:,}",
        f"{result.received_in:.0f}",
        f"{result.idle:.0f}",
        f"{result.full:.0f}",
        f"{sum(result.until_all_wait.values()):,}",
        f"{rate:.2f}",
        f"{rate * HOUR:,.0f}",
        f"{len(result.delays) - tasks}",
        f"{min(result.delays):.2f}",
        f"{percentiles[49]:.2f}",
        f"{percentiles[98]:.2f}",
        f"{max(result.delays):.2f}",
    ]


def main() -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--countdown", type=int, default=170, help="seconds until the first ETA")
    parser.add_argument("--spread", type=int, default=100, help="seconds from first to last ETA")
    parser.add_argument("--timeout", type=int, default=60, help="the queue's visibility timeout")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    options = parser.parse_args()
    console = Console()
    table = Table(title=f"{options.tasks:,} tasks, due from {options.countdown} s on, -c 2")
    table.add_column("")
    columns = []
    with (
        tempfile.TemporaryDirectory() as folder,
        MinistackServer(Path(folder) / "ministack.log") as server,
        FaultProxy(server.url) as proxy,
    ):
        bench = EtaBench(server, proxy, Path(folder))
        for kind in options.kinds:
            result = bench.run(
                kind,
                tasks=options.tasks,
                countdown=options.countdown,
                spread=options.spread,
                timeout=options.timeout,
            )
            columns.append(row(result, options.tasks))
            console.print(f"{kind}: {columns[-1]}, while they wait {dict(result.waiting)}")
            table.add_column(kind, justify="right")
    for name, *values in zip(ROWS, *columns, strict=True):
        table.add_row(name, *values)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
