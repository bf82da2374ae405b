"""The picture of measured rates."""

from __future__ import annotations

from collections import defaultdict

from benchmarks.frame.part import Picture
from benchmarks.frame.pictures import line_chart
from benchmarks.throughput.grid import Grid
from benchmarks.throughput.tables import spread_of


def draw(grid: Grid) -> Picture:
    """Draw the rates of prefork workers by latency."""
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell, rates in grid.items():
        if cell.pool == "prefork":
            point = (cell.latency * 1000, spread_of(rates).median)
            lines[f"{cell.kind.value}, prefetch {cell.prefetch}"].append(point)
    return line_chart(
        "throughput",
        lines,
        alt="Tasks per second of a stock worker and of ours, by the time that each SQS call takes",
        across="time of a call to SQS, ms",
        up="tasks per second",
        log_up=True,
    )
