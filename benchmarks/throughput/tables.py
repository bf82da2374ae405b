"""The tables and ratios of measured rates."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.endless.working import Kind
from benchmarks.frame.part import Spread, Table, digits
from benchmarks.throughput.grid import Cell, Grid
from benchmarks.throughput.rates import Rate

#: Where calls are counted, and where pools other than prefork are compared.
LATENCY, PREFETCH = 0.01, 4
_OPERATIONS = ("ReceiveMessage", "DeleteMessage", "DeleteMessageBatch")


def ratios_of(grid: Grid) -> dict[str, list[float]]:
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
                str(spread_of(grid[Cell(pool, prefetch, latency, Kind(kind))]))
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


def spread_of(rates: Sequence[Rate]) -> Spread:
    """Return the spread of tasks per second."""
    return Spread.of([rate.tasks_per_second for rate in rates])


def _beside(cell: Cell) -> Cell:
    return Cell(cell.pool, cell.prefetch, cell.latency, Kind.STOCK)


def _stock_first(column: tuple[int, str]) -> tuple[int, bool]:
    prefetch, kind = column
    return prefetch, kind != Kind.STOCK.value


def _shown(latency: float) -> str:
    return f"{latency * 1000:g} ms"
