"""The part `pipeline` of the benchmarks: a small report, and three tables of many events."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.frame.part import Findings, Part, Size, Spread, Table, digits
from benchmarks.pipeline import referee
from celery_sqs_heartbeat.pipeline.jobs import build, write_tables
from celery_sqs_heartbeat.pipeline.lines import journal_days
from celery_sqs_heartbeat.pipeline.schema import WORKERS
from celery_sqs_heartbeat.pipeline.spark import new_session
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse
from fleet.generator import JOURNAL, make_fleet

ROOT = Path(__file__).parents[2]
SPARK, DUCKDB = "spark", "duckdb"


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured.

    Attributes:
        hours: Hours of the one worker of the small report.
        workers: Workers of the fleet whose events become tables, for two hours each.
        copies: Copies of that fleet.
        rounds: How often each is measured.
    """

    hours: float
    workers: int
    copies: int
    rounds: int


_AMOUNTS = {
    Size.FULL: Amount(hours=8, workers=4, copies=30, rounds=2),
    Size.TINY: Amount(hours=0.5, workers=1, copies=1, rounds=1),
}


def measure(size: Size) -> Findings:
    """Measure small reports, and the tables."""
    amount = _AMOUNTS[size]
    with TemporaryDirectory(prefix="sqs-heartbeat-benchmark-") as name:
        folder = Path(name)
        lines = make_fleet(folder / "small", workers=1, hours=amount.hours, seed=7).lines
        fleet = make_fleet(
            folder / "large", workers=amount.workers, hours=2, seed=7, copies=amount.copies
        )
        command = [sys.executable, "-m", "celery", "-b", "sqs://", "sqs-heartbeat", "report"]
        command += [str(folder / "small" / JOURNAL), "--out", str(folder / "report.html")]
        reports = [_seconds(command) for _ in range(amount.rounds)]
        tables = _tables(folder / "large" / JOURNAL, folder / "tables", amount.rounds)
    first, *again = (sum(each.values()) for each in tables[SPARK])
    others = [sum(each.values()) for each in tables[DUCKDB][1:]]
    ratios = [ours / other for ours, other in zip(again, others, strict=True)]
    return Findings(
        tables=(_table_table(f"Three tables of {fleet.lines:,} events", tables),),
        ratios={"three tables again, spark / duckdb": ratios},
        notes=(
            f"A report of one worker's journal of {lines:,} lines takes {Spread.of(reports)} s, as "
            "a whole command.",
            "The tables are made one after another, so the sum is longer than in the daily job. "
            f"Spark's first round took {digits(first)} s, because it contains the compilation of "
            "its code. The others, and the ratios, are from later rounds in the same JVM.",
        ),
    )


def _seconds(command: Sequence[str]) -> float:
    began = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _tables(journal: Path, out: Path, rounds: int) -> Mapping[str, Sequence[Mapping[str, float]]]:
    """Return the seconds of each table by engine, in turns: a first round and then `rounds`.

    Raises:
        ValueError: The engines' tables differ.
    """
    found: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)
    # In a process of its own, whose JVM ends with it.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        process.submit(_prepare, journal, out / SPARK).result()
        for _ in range(1 + rounds):
            found[SPARK].append(process.submit(_each_of_spark, journal, out / SPARK).result())
            shutil.rmtree(out / DUCKDB, ignore_errors=True)
            found[DUCKDB].append(referee.make_tables(out / SPARK, out / DUCKDB))
    if differences := referee.differences(out / SPARK, out / DUCKDB):
        raise ValueError("\n".join(differences))
    return found


def _prepare(journal: Path, out: Path) -> None:
    spark = new_session("benchmark")
    build(spark, str(journal), Warehouse(spark, str(out)), tables=(WORKERS,))


def _each_of_spark(journal: Path, out: Path) -> dict[str, float]:
    """Make the tables one after another. Return the seconds of each."""
    spark, seconds = new_session("benchmark"), {}
    run = journal_days(spark, str(journal))
    assert run is not None
    for table in referee.QUERIES:
        began = time.monotonic()
        write_tables(Warehouse(spark, str(out)), run, tables=(table,))
        seconds[table.name] = time.monotonic() - began
    return seconds


def _table_table(title: str, tables: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    first, *again = tables[SPARK]
    rows = []
    for name, seconds in first.items():
        ours = [each[name] for each in again]
        others = [each[name] for each in tables[DUCKDB][1:]]
        ratios = [one / other for one, other in zip(ours, others, strict=True)]
        medians = (digits(Spread.of(each).median) for each in ([seconds], ours, others))
        rows.append([f"`{name}`", *medians, str(Spread.of(ratios))])
    columns = ("table", "Spark, first, s", "Spark, s", "DuckDB, s", "Spark / DuckDB")
    return Table(title, columns, rows)


PART = Part(
    name="pipeline",
    title="The pipeline",
    about=(
        "How long a small report takes, and how long the tables of many events take on Spark "
        "beside DuckDB, an engine for one machine, which makes the same rows in SQL."
    ),
    measure=measure,
)
