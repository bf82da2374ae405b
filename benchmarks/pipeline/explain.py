"""Shows where Spark spends its time, by table, and how its time depends on the number of cores.

python -m benchmarks.pipeline.explain --events 30000000 --cores 1 2

The tables are made one after another here, so their sum is longer than in the daily job. The times
by cores are those of the daily job, which makes them side by side. Events are made once, in a
folder that `python -m benchmarks.pipeline` uses, too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.pipeline.cores import curve, on_cores
from benchmarks.pipeline.data import EVEN
from benchmarks.pipeline.jvm import COLLECTOR, COMPILERS, EXECUTORS, PLANNING
from benchmarks.pipeline.runs import (
    each_of_duckdb,
    each_with_cpu,
    events_of,
    fresh,
    of_duckdb,
    of_spark,
)

_KINDS = (EXECUTORS, COMPILERS, COLLECTOR, PLANNING)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=30_000_000)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--folder", type=Path, default=Path("build/pipeline-benchmark"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    events = fresh(events_of, folder, options.events, EVEN)
    out = folder / "explained"
    _show(f"{options.events:,} events, by table", _by_table(events, out))
    if len(options.cores) > 1:
        _show("all tables, by cores", _by_cores(events, out, options.cores))
    shutil.rmtree(out, ignore_errors=True)


def _by_table(events: Path, out: Path) -> Iterable[str]:
    """Yield a line for each table: its seconds, and the CPU seconds by kinds of Java's threads."""
    shutil.rmtree(out, ignore_errors=True)
    duckdb = fresh(each_of_duckdb, events, out / "duckdb")
    spark = fresh(each_with_cpu, events, out / "spark")
    names = (*_KINDS, "others")
    yield f"  {'':16}{'DuckDB, s':>11}{'Spark, s':>10}{'ratio':>7}  CPU s:" + "".join(
        f"{name:>11}" for name in names
    )
    for table, (seconds, kinds) in spark.items():
        others = sum(kinds.values()) - sum(kinds[kind] for kind in _KINDS)
        spent = [*(kinds[kind] for kind in _KINDS), others]
        ratio = seconds / duckdb[table]
        yield f"  {table:16}{duckdb[table]:11.1f}{seconds:10.1f}{ratio:7.1f}        " + "".join(
            f"{each:11.1f}" for each in spent
        )


def _by_cores(events: Path, out: Path, numbers: Iterable[int]) -> Iterable[str]:
    seconds: dict[str, dict[int, float]] = {"spark": {}, "duckdb": {}}
    for cores in sorted(numbers):
        for engine, make in (("spark", of_spark), ("duckdb", of_duckdb)):
            shutil.rmtree(out, ignore_errors=True)
            seconds[engine][cores] = fresh(on_cores, cores, make, events, out).seconds
    yield from curve(seconds["spark"], seconds["duckdb"])


def _show(title: str, lines: Iterable[str]) -> None:
    sys.stdout.write(f"{title}\n")
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
