"""The part `pipeline` of the benchmarks: a small report, and all tables of many events."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.frame.part import Findings, Part, Size, Spread, Table, digits
from benchmarks.pipeline.runs import (
    compare,
    each_of_duckdb,
    each_of_spark,
    events_in,
    fresh,
    new_process,
)
from celery_sqs_heartbeat.pipeline.options import SAIL, SPARK
from fleet.generator import JOURNAL, make_fleet

ROOT = Path(__file__).parents[2]
DUCKDB = "duckdb"
_TITLES = {SPARK: "Spark", SAIL: "Sail", DUCKDB: "DuckDB"}


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
        small = folder / "small" / JOURNAL
        reports = _reports(small, folder, amount.rounds)
        events = fresh(events_in, folder / "large" / JOURNAL, folder / "events")
        tables = _tables(events, folder / "tables", amount.rounds)
    other = next(engine for engine in reports if engine != SPARK)
    again = {
        engine: [sum(each.values()) for each in rounds[1:]] for engine, rounds in tables.items()
    }
    return Findings(
        tables=(
            _report_table(f"One worker's journal of {lines:,} lines", reports),
            _table_table(f"All tables of {fleet.lines:,} events", tables),
        ),
        ratios={
            f"small report, spark / {other}": _ratios(reports[SPARK], reports[other]),
            "all tables again, spark / duckdb": _ratios(again[SPARK], again[DUCKDB]),
        },
        notes=(
            f"The small report is a whole command. {_what_of(other)}",
            "The tables are made one after another from Parquet to Parquet, so the sum is longer "
            "than in the daily job, which makes them side by side. The start of the engines is "
            "not counted. Spark's first time contains the compilation of its code, by Java and "
            "by Spark itself. The other times, and the ratios, are from later rounds in the same "
            "JVM, in turns with DuckDB. So few events are mostly planning "
            "([30 million events](pipeline.md#speed)).",
        ),
    )


def _what_of(other: str) -> str:
    if other == SAIL:
        return "Both engines write the same page."
    return (
        "Sail is not installed here, so it is compared with DuckDB, which only makes the tables "
        "of existing events."
    )


def _has_sail(python: str) -> bool:
    """Return whether a Python can make a report on Sail. Its environment may not be complete."""
    code = "import celery, pysail"
    return (
        Path(python).exists()
        and not subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL).returncode
    )


def _reports(journal: Path, folder: Path, rounds: int) -> Mapping[str, Sequence[float]]:
    """Return the seconds of whole commands by engine, in turns."""
    commands = {SPARK: _report(sys.executable, SPARK, journal, folder)}
    sail = os.environ.get("PYTHON_OF_SAIL", str(ROOT / ".venv-sail" / "bin" / "python"))
    if _has_sail(sail):
        commands[SAIL] = _report(sail, SAIL, journal, folder)
    else:
        events = fresh(events_in, journal, folder / "small-events")
        commands[DUCKDB] = [
            sys.executable,
            "-m",
            "benchmarks.pipeline.duckdb_tables",
            str(events),
            str(folder / "small-tables"),
        ]
    # The first one writes Java's archive of classes, and compiles Python's modules.
    for command in commands.values() if rounds > 1 else ():
        _seconds(command)
    found: dict[str, list[float]] = {engine: [] for engine in commands}
    for _ in range(rounds):
        for engine, command in commands.items():
            shutil.rmtree(folder / "small-tables", ignore_errors=True)
            found[engine].append(_seconds(command))
    return found


def _report(python: str, engine: str, journal: Path, folder: Path) -> list[str]:
    command = [python, "-m", "celery", "-b", "sqs://", "sqs-heartbeat", "report", str(journal)]
    return [*command, "--engine", engine, "--out", str(folder / f"{engine}.html")]


def _seconds(command: Sequence[str]) -> float:
    began = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _tables(events: Path, out: Path, rounds: int) -> Mapping[str, Sequence[Mapping[str, float]]]:
    """Return the seconds of each table by engine, in turns: a first round and then `rounds`.

    Raises:
        ValueError: The engines' tables differ.
    """
    found: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)
    with new_process() as spark:
        for _ in range(1 + rounds):
            shutil.rmtree(out, ignore_errors=True)
            found[SPARK].append(spark.submit(each_of_spark, events, out / SPARK).result())
            found[DUCKDB].append(fresh(each_of_duckdb, events, out / DUCKDB))
    if differences := fresh(compare, out / SPARK, out / DUCKDB):
        raise ValueError("\n".join(differences))
    return found


def _ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ours, others, strict=True)]


def _report_table(title: str, reports: Mapping[str, Sequence[float]]) -> Table:
    rows = [[_TITLES[engine], str(Spread.of(each))] for engine, each in reports.items()]
    return Table(title, ("engine", "seconds"), rows)


def _table_table(title: str, tables: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    first, *again = tables[SPARK]
    rows = []
    for name, seconds in first.items():
        ours = [each[name] for each in again]
        others = [each[name] for each in tables[DUCKDB][1:]]
        medians = (digits(Spread.of(each).median) for each in ([seconds], ours, others))
        rows.append([f"`{name}`", *medians, str(Spread.of(_ratios(ours, others)))])
    columns = ("table", "Spark, first, s", "Spark, s", "DuckDB, s", "Spark / DuckDB")
    return Table(title, columns, rows)


PART = Part(
    name="pipeline",
    title="The pipeline",
    about=(
        "How long a small report takes, which is what most people make, and how long the tables of "
        "many events take on Spark beside DuckDB, an engine for one machine, which runs the same "
        "steps in SQL, with a thread for each core."
    ),
    measure=measure,
)
