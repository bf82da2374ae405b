"""Measures tasks per second for each pool, prefetch multiplier, latency and kind of worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import NOTHING, Kind, working
from benchmarks.throughput.plan import Plan
from benchmarks.throughput.rates import Rate, begin, measure


@dataclass(frozen=True, slots=True)
class Cell:
    """What was measured several times. `latency` is in seconds."""

    pool: str
    prefetch: int
    latency: float
    kind: Kind


Grid = Mapping[Cell, Sequence[Rate]]


def measure_grid(server: EndlessServer, plan: Plan, folder: Path) -> Grid:
    """Measure all cells, one worker after the other."""
    grid: dict[Cell, list[Rate]] = defaultdict(list)
    for setup in plan.lives():
        queue = server.queue(NOTHING)
        with working(server, queue, setup, folder):
            begin(queue)
            for latency in plan.latencies[setup.pool]:
                cell = Cell(setup.pool, setup.prefetch, latency, setup.kind)
                grid[cell].append(measure(queue, latency, plan.window))
    return grid
