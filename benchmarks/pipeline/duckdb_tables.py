"""Makes the tables with DuckDB in Spark's steps: from Parquet to Parquet, each read again.

The SQL is in `sql*.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection, connect

from benchmarks.pipeline import sql_attempts, sql_duplicates
from benchmarks.pipeline.sql import (
    CALLS,
    DURATIONS,
    MACROS,
    RECOVERIES,
    WORKERS,
    literal,
    parquet_of,
    type_of,
)
from benchmarks.pipeline.sql_attempts import ATTEMPTS
from benchmarks.pipeline.sql_duplicates import DUPLICATES
from benchmarks.pipeline.sql_group_stops import GROUP_STOPS
from benchmarks.pipeline.sql_in_flight import IN_FLIGHT
from benchmarks.pipeline.sql_survey import CRASHES, FLEET, HISTOGRAMS, LAST_DAY, LATENESSES
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.tables.calls import CALL_PARTS
from celery_sqs_heartbeat.pipeline.tuning.advice import recommend
from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram
from celery_sqs_heartbeat.pipeline.tuning.measured import Fleet, Measured
from celery_sqs_heartbeat.pipeline.tuning.replay import Worth
from celery_sqs_heartbeat.pipeline.tuning.survey import Survey

#: In an order in which each table follows its sources.
QUERIES: Mapping[Table, str] = {
    schema.WORKERS: WORKERS,
    schema.ATTEMPTS: ATTEMPTS,
    schema.DUPLICATES: DUPLICATES,
    schema.RECOVERIES: RECOVERIES,
    schema.GROUP_STOPS: GROUP_STOPS,
    schema.DURATIONS: DURATIONS,
    schema.IN_FLIGHT: IN_FLIGHT,
    schema.CALLS: CALLS,
    schema.RECOMMENDATIONS: "FROM recommended",
}
_READ_AGAIN = (schema.WORKERS, schema.ATTEMPTS, schema.DURATIONS)


def make_tables(events: Path, out: Path, memory_limit: str = "8GB") -> dict[str, float]:
    """Make the tables of one warehouse's events in another, and return the seconds of each."""
    out.mkdir(parents=True, exist_ok=True)
    seconds = {}
    with tempfile.TemporaryDirectory(prefix=".duckdb-", dir=out) as temp, connect() as connection:
        connection.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
        connection.execute(f"SET memory_limit = '{memory_limit}'")
        connection.execute(f"SET temp_directory = {literal(Path(temp))}")
        connection.execute("SET preserve_insertion_order = FALSE")
        connection.execute("SET enable_progress_bar = FALSE")
        for macros in (MACROS, sql_attempts.MACROS, sql_duplicates.MACROS):
            connection.execute(macros)
        _show(connection, schema.EVENTS, events)
        for table, query in QUERIES.items():
            began = time.monotonic()
            if table is schema.RECOMMENDATIONS:
                _recommend(connection)
            _write(connection, table, query, out)
            seconds[table.name] = time.monotonic() - began
            if table in _READ_AGAIN:
                _show(connection, table, out)
    return seconds


def _show(connection: DuckDBPyConnection, table: Table, warehouse: Path) -> None:
    """Create a view with a table's name on its files."""
    connection.execute(f"CREATE VIEW {table.name} AS FROM {parquet_of(warehouse, table)}")


def _write(connection: DuckDBPyConnection, table: Table, query: str, out: Path) -> None:
    columns = [f'"{each.name}"::{type_of(each)} AS "{each.name}"' for each in table.columns]
    shaped = f"SELECT {', '.join(columns)}, {PARTITION} FROM ({query})"
    connection.execute(
        f"COPY ({shaped}) TO {literal(out / table.name)} "
        f"(FORMAT parquet, COMPRESSION zstd, PARTITION_BY ({PARTITION}), OVERWRITE)"
    )


def _recommend(connection: DuckDBPyConnection) -> None:
    """Fill the table `recommended` with the project's recommendations for the measurements."""
    columns = [f'"{each.name}" {type_of(each)}' for each in schema.RECOMMENDATIONS.columns]
    connection.execute(f"CREATE TABLE recommended ({', '.join(columns)}, {PARTITION} DATE)")
    ((day,),) = connection.execute(LAST_DAY).fetchall()
    if day is None:
        return
    names = schema.RECOMMENDATIONS.names
    rows = [{**asdict(row), PARTITION: day} for row in recommend(_survey(connection), Worth())]
    if rows:
        places = ", ".join("?" for _ in names)
        values = [tuple(row[name] for name in names) for row in rows]
        connection.executemany(f"INSERT INTO recommended VALUES ({places})", values)


def _survey(connection: DuckDBPyConnection) -> Survey:
    """Return the measurements, as `survey.survey` does."""
    ((worker_us, concurrency, settings),) = connection.execute(FLEET).fetchall()
    latencies, entries, stalls = _latenesses(connection)
    fleet = Fleet(stalls=stalls, worker_us=worker_us or 0, concurrency=concurrency or 1)
    crashes = {
        (queue, task): number for queue, task, number in connection.execute(CRASHES).fetchall()
    }
    bins: defaultdict[tuple[str, str | None], list[Sequence[Any]]] = defaultdict(list)
    for queue, task, *counts in connection.execute(HISTOGRAMS).fetchall():
        bins[queue, task].append(counts)
    queues: list[Measured] = []
    tasks: defaultdict[str, list[Measured]] = defaultdict(list)
    for queue, task in sorted(bins, key=lambda key: (key[0], key[1] or "")):
        counts = bins[queue, task]
        measured = Measured(
            queue=queue,
            task=task,
            held=_histogram(counts, "held"),
            run=_histogram(counts, "run"),
            latency=latencies.get(queue, Histogram()),
            entries_per_call=entries.get(queue, 1.0),
            crashes=crashes.get((queue, task), 0),
            timeouts=_timeouts(counts),
            fleet=fleet,
        )
        (queues if task is None else tasks[queue]).append(measured)
    return Survey(queues=queues, tasks=tasks, settings=settings or {})


def _histogram(counts: Sequence[Sequence[Any]], measure: str) -> Histogram:
    spans: Counter[int] = Counter()
    censored: Counter[int] = Counter()
    for of, _, number, ended, lasting in counts:
        if of == measure:
            spans[number] += ended
            censored[number] += lasting
    return Histogram(spans, censored)


def _timeouts(counts: Sequence[Sequence[Any]]) -> dict[int, int]:
    timeouts: Counter[int] = Counter()
    for of, timeout, _, ended, lasting in counts:
        if of == "held" and timeout:
            timeouts[timeout] += ended + lasting
    return dict(timeouts)


def _latenesses(
    connection: DuckDBPyConnection,
) -> tuple[dict[str, Histogram], dict[str, float], Histogram]:
    """Return each queue's calls by latency and entries, and the keepers' stalls."""
    calls: defaultdict[str, Counter[int]] = defaultdict(Counter)
    parts: Counter[str] = Counter()
    entries: Counter[str] = Counter()
    stalls: Counter[int] = Counter()
    for queue, number, events, shares in connection.execute(LATENESSES).fetchall():
        if queue is None:
            stalls[number] = events
        else:
            calls[queue][number] = -(-shares // CALL_PARTS)
            parts[queue] += shares
            entries[queue] += events
    return (
        {queue: Histogram(counts) for queue, counts in calls.items()},
        {queue: entries[queue] * CALL_PARTS / parts[queue] for queue in calls},
        Histogram(stalls),
    )


if __name__ == "__main__":
    make_tables(*map(Path, sys.argv[1:3]))
