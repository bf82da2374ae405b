"""Times the pipeline's tables and compares them with DuckDB's, on a multiplied fleet's events.

python -m benchmarks.pipeline --events 10000000 30000000 --shape even hot --lines 1000000 2000000

Each measurement runs in its own process, whose start is not timed. In `hot`, 95 % of the messages
are in one queue. The tables that Spark and Sail make from Parquet are compared with DuckDB's. If
they differ, the benchmark exits with status 1. Finally everything is made from compressed JSON
Lines, of workers whose clocks are wrong, or right. The data is made once, in a folder that later
runs reuse. Sail needs its own environment: make .venv-sail/test.stamp.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from duckdb import connect

from benchmarks.pipeline.data import EVEN, SHAPES, events_path
from benchmarks.pipeline.figures import Run
from benchmarks.pipeline.projection import difference, projection
from benchmarks.pipeline.runs import (
    compare,
    events_of,
    fresh,
    journal_of,
    of_duckdb,
    of_journal,
    of_sail,
    of_spark,
)
from benchmarks.pipeline.sql import parquet_of
from benchmarks.pipeline.verdict import Pair, verdicts
from celery_sqs_heartbeat.pipeline.options import SAIL, SPARK
from celery_sqs_heartbeat.pipeline.schema import EVENTS


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[10_000_000, 30_000_000])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--lines", type=int, nargs="*", default=[1_000_000, 2_000_000])
    parser.add_argument(
        "--right-clocks",
        action="store_true",
        help="Use right clocks in journals.",
    )
    parser.add_argument("--sail-python", default=".venv-sail/bin/python")
    parser.add_argument("--folder", type=Path, default=Path("build/pipeline-benchmark"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sources = {
        (size, shape): fresh(events_of, folder, size, shape)
        for size in options.events
        for shape in options.shape
    }
    journals = {
        size: fresh(journal_of, folder, size, with_skew=not options.right_clocks)
        for size in options.lines
    }
    out = folder / "tables"
    pairs: dict[str, dict[tuple[int, str], Pair]] = {SPARK: {}, SAIL: {}}
    for (size, shape), events in sources.items():
        title = f"{size:,} events, {shape}"
        for engine, pair in _from_parquet(events, out, title, options.sail_python).items():
            pairs[engine][size, shape] = pair
    lines: dict[str, dict[int, Pair]] = {SPARK: {}, SAIL: {}}
    for size, journal in journals.items():
        written = _count(events_path(folder, size, EVEN))
        for engine, pair in _from_lines(journal, out, written, options.sail_python).items():
            lines[engine][size] = pair
    for engine in (SPARK, SAIL):
        _show(f"targets, {engine}", verdicts(pairs[engine], lines[engine]))
    evens = [key for key in sorted(pairs[SPARK]) if key[1] == EVEN]
    for key in evens:
        title = f"where the time goes, {key[0]:,} events, even"
        _show(title, difference(pairs[SPARK][key], pairs[SAIL][key].own))
    for engine in (SPARK, SAIL):
        _show(f"a billion events a day, {engine}", projection(pairs[engine], lines[engine]))
    shutil.rmtree(out)


def _from_parquet(events: Path, out: Path, title: str, python: str) -> dict[str, Pair]:
    """Measure the engines and DuckDB. Exit with status 1 if their tables differ."""
    shutil.rmtree(out, ignore_errors=True)
    runs = {
        SPARK: fresh(of_spark, events, out / SPARK),
        SAIL: of_sail(python, "make_tables", events, out / SAIL),
    }
    duckdb = fresh(of_duckdb, events, out / "duckdb")
    pairs = {engine: Pair(_count(events), run, duckdb) for engine, run in runs.items()}
    for engine, pair in pairs.items():
        _compare(title, pair, engine, "duckdb")
        _end_if(fresh(compare, out / engine, out / "duckdb"))
    _show("  the tables are the same", ())
    return pairs


def _from_lines(journal: Path, out: Path, written: int, python: str) -> dict[str, Pair]:
    """Measure the engines from a journal, and from the events that they made of it.

    Exit with status 1 if there are not as many events as written lines.
    """
    shutil.rmtree(out, ignore_errors=True)
    segments = list(journal.glob("dt=*/worker=*/seg-*"))
    kb = sum(path.stat().st_size for path in segments) / max(len(segments), 1) / 1000
    title = f"{written:,} lines of JSON in {len(segments):,} segments of {kb:,.0f} KB"
    all_of = {
        SPARK: fresh(of_journal, journal, out / SPARK),
        SAIL: of_sail(python, "make_all", journal, out / SAIL),
    }
    from_parquet = {
        SPARK: fresh(of_spark, out / SPARK, out / "tables"),
        SAIL: of_sail(python, "make_tables", out / SAIL, out / "sail-tables"),
    }
    pairs = {}
    for engine, run in all_of.items():
        pairs[engine] = Pair(_count(out / engine), run, from_parquet[engine])
        _compare(title, pairs[engine], engine, "Parquet")
        if pairs[engine].events != written:
            _end_if([f"{journal}: {written:,} lines, but {pairs[engine].events:,} events"])
    return pairs


def _compare(title: str, pair: Pair, engine: str, other: str) -> None:
    """Show the seconds for each table, and the load of the machine for both."""

    def line(name: str, one: float | None, two: float | None) -> str:
        ratio = f"{one / two:8.2f}" if one and two else ""
        return f"  {name:33}" + "".join(f"{v:10.1f}" if v else " " * 10 for v in (one, two)) + ratio

    _show(f"{title} ({pair.events:,} events, load {os.getloadavg()[0]:.1f})", ())
    one, two = pair.own, pair.other
    rows = [f"  {'seconds':33}{engine:>10}{other:>10}{'ratio':>8}"]
    rows += [line(name, one.wall[name], two.wall.get(name)) for name in one.wall]
    rows += [line("all", one.seconds, two.seconds), line("all, CPU", one.cpu, two.cpu)]
    rows += [line("load", one.load, two.load), line("peak, MB", _peak(one), _peak(two))]
    _show("", rows)


def _peak(run: Run) -> float | None:
    return run.peak_mb or None


def _count(warehouse: Path) -> int:
    with connect() as connection:
        rows = connection.execute(f"SELECT count(*) FROM {parquet_of(warehouse, EVENTS)}")
        return int(rows.fetchall()[0][0])


def _end_if(mismatches: Iterable[str]) -> None:
    if found := list(mismatches):
        _show("MISMATCH", found)
        sys.exit(1)


def _show(title: str, lines: Iterable[str]) -> None:
    for line in (*([title] if title else []), *lines):
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
