"""The targets, and what was measured of them. One that is missed is told, and is no error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.pipeline_data import EVEN, HOT
from benchmarks.pipeline_figures import Run

#: Seconds for all tables of so many even events from Parquet, after the session has started.
SECONDS = {10_000_000: 35.0, 30_000_000: 65.0}
#: The engine's time by DuckDB's, at this size.
DUCKDB_SIZE, DUCKDB_RATIO = 30_000_000, 2.5
#: Hot by even.
HOT_RATIO = 1.3
#: All from compressed JSON Lines, by the tables from the Parquet of the same events.
JSON_SIZE, JSON_RATIO = 2_000_000, 2.0
#: The process of the driver, or of all of Sail.
DRIVER_MB = 2048


@dataclass(frozen=True)
class Pair:
    """The same tables by two ways.

    Attributes:
        events: How many there are.
        own: The engine's; for a journal, events and tables of its lines.
        other: DuckDB's; for a journal, the engine's tables of its events.
    """

    events: int
    own: Run
    other: Run

    @property
    def ratio(self) -> float:
        """Return how many times the other's seconds the engine needs."""
        return self.own.seconds / self.other.seconds

    @property
    def per_million(self) -> float:
        """Return the engine's seconds for a million events."""
        return self.own.seconds / self.events * 1e6


#: By the size asked for and the shape.
Pairs = Mapping[tuple[int, str], Pair]


def verdicts(pairs: Pairs, journals: Mapping[int, Pair]) -> Iterator[str]:
    """Return a line for each target."""
    for size, limit in SECONDS.items():
        pair = pairs.get((size, EVEN))
        value = pair.own.seconds if pair else None
        yield _verdict(f"{size:,} events, even, seconds", value, limit)
    pair = pairs.get((DUCKDB_SIZE, EVEN))
    value = pair.ratio if pair else None
    yield _verdict(f"{DUCKDB_SIZE:,} events, even, by DuckDB", value, DUCKDB_RATIO)
    evens = [pairs[size, EVEN] for size in SECONDS if (size, EVEN) in pairs]
    growth = evens[1].per_million / evens[0].per_million if len(evens) > 1 else None
    yield _verdict("time per event, 30 million by 10 million", growth, 1.0)
    for size in SECONDS:
        yield _verdict(f"{size:,} events, hot by even", _hot_by_even(pairs, size), HOT_RATIO)
    lines = journals.get(JSON_SIZE)
    value = lines.ratio if lines else None
    yield _verdict(f"{JSON_SIZE:,} lines of JSON by from Parquet", value, JSON_RATIO)
    runs = [pair.own for pair in pairs.values()]
    runs += [run for pair in journals.values() for run in (pair.own, pair.other)]
    # Of less data it would say nothing.
    is_full = any(size in SECONDS for size, _ in pairs)
    peak, heap = (
        max(values, default=0.0)
        for values in ([r.peak_mb for r in runs], [r.heap_mb for r in runs])
    )
    yield _verdict(
        "memory of the process (peak, resident), MB", peak if is_full else None, DRIVER_MB
    )
    if heap:
        yield f"  of which the heap may have {heap:,.0f} MB; peak of all runs {peak:,.0f} MB"
    for size, shape in sorted(pairs):
        yield f"  {size:,} {shape}: {pairs[size, shape].per_million:.2f} s for a million events"
    for size in sorted({size for size, _ in pairs}):
        if ratio := _hot_by_even(pairs, size):
            yield f"  {size:,}: hot by even {ratio:.2f}"
    yield from _more_lines(journals)


def _hot_by_even(pairs: Pairs, size: int) -> float | None:
    hot, even = pairs.get((size, HOT)), pairs.get((size, EVEN))
    return hot.own.seconds / even.own.seconds if hot and even else None


def _more_lines(journals: Mapping[int, Pair]) -> Iterator[str]:
    """Return the ratio without what any start takes, which makes it small where lines are few."""
    if len(journals) < 2:
        return
    few, many = journals[min(journals)], journals[max(journals)]
    parquet = many.other.cpu - few.other.cpu
    if parquet > 0:
        ratio = (many.own.cpu - few.own.cpu) / parquet
        yield f"  of one more line, CPU time from JSON by from Parquet: {ratio:.2f}"


def _verdict(what: str, value: float | None, limit: float) -> str:
    if value is None:
        return f"  {what:52} {'-':>8}, at most {limit:g}: not measured"
    return f"  {what:52} {value:8.2f}, at most {limit:g}: {'met' if value <= limit else 'MISSED'}"
