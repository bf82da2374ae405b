"""Measures tasks per second for each pool, prefetch multiplier, latency and kind of worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endless.server import BenchQueue, EndlessServer
from benchmarks.endless.working import NOTHING, Kind, all_working
from benchmarks.throughput.plan import Plan
from benchmarks.throughput.rates import Rate, measure


@dataclass(frozen=True, slots=True)
class Cell:
    """What was measured several times. `latency` is in seconds."""

    pool: str
    prefetch: int
    latency: float
    kind: Kind


Grid = Mapping[Cell, Sequence[Rate]]


def measure_grid(server: EndlessServer, plan: Plan, folder: Path) -> Grid:
    """Measure all cells, and return their rates."""
    grid: dict[Cell, list[Rate]] = defaultdict(list)
    for setups in plan.lives():
        queues = {server.queue(NOTHING): setup for setup in setups}
        with all_working(server, queues, folder):
            for latency in plan.latencies[setups[0].pool]:
                rates = _measure_all(list(queues), latency, plan.window)
                for setup, rate in zip(setups, rates, strict=True):
                    cell = Cell(setup.pool, setup.prefetch, latency, setup.kind)
                    grid[cell].append(rate)
    return grid


def _measure_all(queues: Sequence[BenchQueue], latency: float, window: float) -> Sequence[Rate]:
    """Measure workers: all at the same time, unless their calls take no time.

    Then they need the CPU, and each is measured while the others have nothing to do.
    """
    if latency:
        with ThreadPoolExecutor(len(queues)) as threads:
            return list(threads.map(lambda queue: measure(queue, latency, window), queues))
    rates = []
    for queue in queues:
        rates.append(measure(queue, latency, window))
        queue.fill()
    return rates
