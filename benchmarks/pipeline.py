"""Times the pipeline's tables beside DuckDB's, on a fleet's events that were multiplied.

python -m benchmarks.pipeline --events 10000000 30000000 --shape even hot --lines 1000000 2000000

Each measurement has a JVM of its own; its start is not timed. `hot` has 95 % of the messages in
one queue. From Parquet, the tables of both programs are compared: where they differ, this ends
with status 1. At last, all is made of compressed JSON Lines. The data is made once, in a folder
that later runs use again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from duckdb import connect

from benchmarks.pipeline_data import EVEN, SHAPES, events_path
from benchmarks.pipeline_projection import difference, projection
from benchmarks.pipeline_runs import (
    Run,
    compare,
    events_of,
    fresh,
    journal_of,
    of_duckdb,
    of_journal,
    of_spark,
)
from benchmarks.pipeline_sql import parquet_of
from benchmarks.pipeline_verdict import Pair, verdicts
from celery_sqs_heartbeat.pipeline.schema import EVENTS


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[10_000_000, 30_000_000])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--lines", type=int, nargs="*", default=[1_000_000, 2_000_000])
    parser.add_argument("--folder", type=Path, default=Path("build/pipeline-benchmark"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sources = {
        (size, shape): fresh(events_of, folder, size, shape)
        for size in options.events
        for shape in options.shape
    }
    journals = {size: fresh(journal_of, folder, size) for size in options.lines}
    out = folder / "tables"
    pairs = {}
    for (size, shape), events in sources.items():
        pairs[size, shape] = _from_parquet(events, out, f"{size:,} events, {shape}")
    lines = {
        size: _from_lines(journal, out, _count(events_path(folder, size, EVEN)))
        for size, journal in journals.items()
    }
    _show("targets", verdicts(pairs, lines))
    evens = [key for key in sorted(pairs) if key[1] == EVEN]
    for key in evens:
        _show(f"where the time goes, {key[0]:,} events, even", difference(pairs[key]))
    _show("a billion events a day", projection(pairs, lines))
    shutil.rmtree(out)


def _from_parquet(events: Path, out: Path, title: str) -> Pair:
    """Measure Spark and DuckDB; end with status 1 if they have made different tables."""
    shutil.rmtree(out, ignore_errors=True)
    spark = fresh(of_spark, events, out / "spark")
    pair = Pair(_count(events), spark, fresh(of_duckdb, events, out / "duckdb"))
    _compare(title, pair, "DuckDB")
    _end_if(fresh(compare, out / "spark", out / "duckdb"))
    _show("  the tables are the same", ())
    return pair


def _from_lines(journal: Path, out: Path, written: int) -> Pair:
    """Measure Spark from a journal, and from the events that it has made of that.

    It ends with status 1 if those are not as many as were written.
    """
    shutil.rmtree(out, ignore_errors=True)
    segments = list(journal.glob("dt=*/worker=*/seg-*"))
    all_of = fresh(of_journal, journal, out / "all")
    pair = Pair(_count(out / "all"), all_of, fresh(of_spark, out / "all", out / "tables"))
    kb = sum(path.stat().st_size for path in segments) / max(len(segments), 1) / 1000
    title = f"{written:,} lines of JSON in {len(segments):,} segments of {kb:,.0f} KB"
    _compare(title, pair, "Parquet")
    if pair.events != written:
        _end_if([f"{journal}: {written:,} lines, but {pair.events:,} events"])
    return pair


def _compare(title: str, pair: Pair, other: str) -> None:
    """Show the seconds for each table, and of both the load of the machine."""

    def line(name: str, one: float | None, two: float | None) -> str:
        ratio = f"{one / two:8.2f}" if one and two else ""
        return f"  {name:33}" + "".join(f"{v:10.1f}" if v else " " * 10 for v in (one, two)) + ratio

    _show(f"{title} ({pair.events:,} events, load {os.getloadavg()[0]:.1f})", ())
    one, two = pair.spark, pair.other
    rows = [f"  {'seconds':33}{'Spark':>10}{other:>10}{'ratio':>8}"]
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
