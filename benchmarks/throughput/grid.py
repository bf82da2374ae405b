"""Tasks per second for each pool, prefetch multiplier, latency and kind of worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import NOTHING, Kind, working
from benchmarks.frame.part import Picture, Spread, Table, digits
from benchmarks.frame.pictures import line_chart
from benchmarks.throughput.plan import Plan
from benchmarks.throughput.rates import Rate, begin, measure

#: Where calls are counted, and where pools other than prefork are compared.
LATENCY, PREFETCH = 0.01, 4
_OPERATIONS = (
    "ReceiveMessage",
    "DeleteMessage",
    "DeleteMessageBatch",
    "ChangeMessageVisibilityBatch",
)


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


def ratios(grid: Grid) -> dict[str, list[float]]:
    """Return our rates divided by stock rates, by round: all of prefork, and one of each pool."""
    return {
        f"{ours.pool}, prefetch {ours.prefetch}, {_shown(ours.latency)}": [
            mine.tasks_per_second / stock.tasks_per_second
            for mine, stock in zip(rates, grid[_beside(ours)], strict=True)
        ]
        for ours, rates in grid.items()
        if ours.kind is Kind.OURS
        and (ours.pool == "prefork" or (ours.prefetch, ours.latency) == (PREFETCH, LATENCY))
    }


def rate_table(grid: Grid, pool: str) -> Table:
    """Return the rates of a pool: a row for each latency."""
    cells = [cell for cell in grid if cell.pool == pool]
    columns = sorted({(cell.prefetch, cell.kind.value) for cell in cells}, key=_stock_first)
    rows = [
        [
            _shown(latency),
            *(
                str(_spread(grid[Cell(pool, prefetch, latency, Kind(kind))]))
                for prefetch, kind in columns
            ),
        ]
        for latency in dict.fromkeys(cell.latency for cell in cells)
    ]
    names = [f"{kind}, prefetch {prefetch}" for prefetch, kind in columns]
    return Table(f"Tasks a second, {pool}, by the time of a call", ("a call", *names), rows)


def call_table(grid: Grid) -> Table:
    """Return the calls per task of prefork workers, by operation."""
    cells = [cell for cell in grid if (cell.pool, cell.latency) == ("prefork", LATENCY)]
    rows = []
    for cell in sorted(cells, key=lambda each: _stock_first((each.prefetch, each.kind.value))):
        tasks = sum(rate.deleted for rate in grid[cell])
        calls = [sum(rate.calls.get(name, 0) for rate in grid[cell]) for name in _OPERATIONS]
        name = f"{cell.kind.value}, prefetch {cell.prefetch}"
        rows.append([name, *(digits(each / tasks) for each in (*calls, sum(calls)))])
    columns = ("", *_OPERATIONS, "together")
    return Table(f"Calls a task, prefork, {_shown(LATENCY)} a call", columns, rows)


def picture(grid: Grid) -> Picture:
    """Draw the rates of prefork workers by latency."""
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell, rates in grid.items():
        if cell.pool == "prefork":
            point = (cell.latency * 1000, _spread(rates).median)
            lines[f"{cell.kind.value}, prefetch {cell.prefetch}"].append(point)
    return line_chart(
        "throughput",
        lines,
        alt="Tasks per second of a stock worker and of ours, by the time that each SQS call takes",
        across="time of a call to SQS, ms",
        up="tasks per second",
        log_up=True,
    )


def _spread(rates: Sequence[Rate]) -> Spread:
    return Spread.of([rate.tasks_per_second for rate in rates])


def _beside(cell: Cell) -> Cell:
    return Cell(cell.pool, cell.prefetch, cell.latency, Kind.STOCK)


def _stock_first(column: tuple[int, str]) -> tuple[int, bool]:
    prefetch, kind = column
    return prefetch, kind != Kind.STOCK.value


def _shown(latency: float) -> str:
    return f"{latency * 1000:g} ms"
