"""Compares the measurements with the targets. A missed target is reported, and is no error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.pipeline.data import EVEN, HOT
from benchmarks.pipeline.figures import Run

#: The most seconds for all tables of that many even events from Parquet, after the session starts.
SECONDS = {10_000_000: 35.0, 30_000_000: 65.0}
#: The highest ratio of the engine's time to DuckDB's, at this size.
DUCKDB_SIZE, DUCKDB_RATIO = 30_000_000, 2.5
#: The highest ratio of hot to even.
HOT_RATIO = 1.3
#: The highest ratio of everything from compressed JSON Lines to the tables from Parquet.
JSON_SIZE, JSON_RATIO = 2_000_000, 2.0
#: The memory of the driver's process, or of all of Sail.
DRIVER_MB = 2048


@dataclass(frozen=True)
class Pair:
    """The same tables, made in two ways.

    Attributes:
        events: The number of events.
        own: The engine's run. For a journal, it makes events and tables from lines.
        other: DuckDB's run. For a journal, the engine's run from its events.
    """

    events: int
    own: Run
    other: Run

    @property
    def ratio(self) -> float:
        """Return the ratio of the engine's seconds to the other's."""
        return self.own.seconds / self.other.seconds

    @property
    def per_million(self) -> float:
        """Return the engine's seconds for a million events."""
        return self.own.seconds / self.events * 1e6


#: By the requested size and the shape.
Pairs = Mapping[tuple[int, str], Pair]


def verdicts(pairs: Pairs, journals: Mapping[int, Pair]) -> Iterator[str]:
    """Return a line for each target."""
    for size, limit in SECONDS.items():
        pair = pairs.get((size, EVEN))
        value = pair.own.seconds if pair else None
        yield _verdict(f"{size:,} events, even, seconds", value, limit)
    pair = pairs.get((DUCKDB_SIZE, EVEN))
    value = pair.ratio if pair else None
    yield _verdict(f"{DUCKDB_SIZE:,} events, even, ratio to DuckDB", value, DUCKDB_RATIO)
    evens = [pairs[size, EVEN] for size in SECONDS if (size, EVEN) in pairs]
    growth = evens[1].per_million / evens[0].per_million if len(evens) > 1 else None
    yield _verdict("time per event, ratio of 30 to 10 million", growth, 1.0)
    for size in SECONDS:
        yield _verdict(f"{size:,} events, hot to even", _hot_by_even(pairs, size), HOT_RATIO)
    lines = journals.get(JSON_SIZE)
    value = lines.ratio if lines else None
    yield _verdict(f"{JSON_SIZE:,} lines, ratio of JSON to Parquet", value, JSON_RATIO)
    runs = [pair.own for pair in pairs.values()]
    runs += [run for pair in journals.values() for run in (pair.own, pair.other)]
    # With less data the peak would prove nothing.
    is_full = any(size in SECONDS for size, _ in pairs)
    peak, heap = (
        max(values, default=0.0)
        for values in ([r.peak_mb for r in runs], [r.heap_mb for r in runs])
    )
    yield _verdict(
        "memory of the process (peak, resident), MB", peak if is_full else None, DRIVER_MB
    )
    if heap:
        yield f"  the heap may use {heap:,.0f} MB of it; the peak of all runs is {peak:,.0f} MB"
    for size, shape in sorted(pairs):
        yield f"  {size:,} {shape}: {pairs[size, shape].per_million:.2f} s per million events"
    for size in sorted({size for size, _ in pairs}):
        if ratio := _hot_by_even(pairs, size):
            yield f"  {size:,}: ratio of hot to even {ratio:.2f}"
    yield from _more_lines(journals)


def _hot_by_even(pairs: Pairs, size: int) -> float | None:
    hot, even = pairs.get((size, HOT)), pairs.get((size, EVEN))
    return hot.own.seconds / even.own.seconds if hot and even else None


def _more_lines(journals: Mapping[int, Pair]) -> Iterator[str]:
    """Return the ratio without the cost of a start, which would lower it if there are few lines."""
    if len(journals) < 2:
        return
    few, many = journals[min(journals)], journals[max(journals)]
    parquet = many.other.cpu - few.other.cpu
    if parquet > 0:
        ratio = (many.own.cpu - few.own.cpu) / parquet
        yield f"  CPU time of one more line, ratio of JSON to Parquet: {ratio:.2f}"


def _verdict(what: str, value: float | None, limit: float) -> str:
    if value is None:
        return f"  {what:52} {'-':>8}, at most {limit:g}: not measured"
    return f"  {what:52} {value:8.2f}, at most {limit:g}: {'met' if value <= limit else 'MISSED'}"
