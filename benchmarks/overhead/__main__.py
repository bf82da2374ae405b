"""Compares the cost of a worker with that of a stock worker, or of another checkout, by pool.

python -m benchmarks.overhead --rounds 3 --pool prefork --pool gevent
python -m benchmarks.overhead --beside ../other    # another checkout of this project
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import Kind, Setup
from benchmarks.frame.part import digits
from benchmarks.overhead.turns import Costs, Pace, in_turns
from benchmarks.overhead.variants import UNLIMITED

_POOLS = ("prefork", "threads", "solo", "gevent", "eventlet")


@click.command()
@click.option("--rounds", default=3)
@click.option("--pool", "pools", multiple=True, type=click.Choice(_POOLS), default=_POOLS)
@click.option("--latency", "latencies", multiple=True, type=float, default=(0.0, 0.01))
@click.option("--tasks", default=300, help="Tasks of each worker in a round.")
@click.option(
    "--beside",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another checkout, instead of a stock worker.",
)
def main(
    rounds: int,
    pools: Sequence[str],
    latencies: Sequence[float],
    tasks: int,
    beside: Path | None,
) -> None:
    """Print a table for each pool and latency. The workers take turns."""
    console = Console()
    pace = Pace(rounds=rounds, tasks=tasks, warm_up=tasks)
    other_name = "other checkout" if beside else "stock"
    with (
        tempfile.TemporaryDirectory() as name,
        EndlessServer(Path(name) / "server.log") as server,
    ):
        for latency in latencies:
            for pool in pools:
                ours = Setup(kind=Kind.OURS, pool=pool, prefetch=UNLIMITED, fresh=True)
                other = (
                    replace(ours, checkout=beside.resolve())
                    if beside
                    else replace(ours, kind=Kind.STOCK)
                )
                setups = {other_name: other, "ours": ours}
                costs = in_turns(server, setups, Path(name), pace, latency=latency)
                console.print(_table(f"{pool}, {latency * 1000:g} ms a call", costs))


def _table(title: str, costs: Costs) -> Table:
    table = Table(title=title)
    for column in ("", *costs, "ratio"):
        table.add_column(column, justify="right")
    pairs = list(zip(*costs.values(), strict=True))
    for row in pairs[0][0].figures:
        figures = [(theirs.figures[row], ours.figures[row]) for theirs, ours in pairs]
        ratios = [ours / theirs for theirs, ours in figures if theirs]
        medians = [digits(statistics.median(each)) for each in zip(*figures, strict=True)]
        table.add_row(row, *medians, digits(statistics.median(ratios)) if ratios else "")
    return table


if __name__ == "__main__":
    main()
