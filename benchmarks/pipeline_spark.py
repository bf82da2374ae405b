"""The tables in Spark, as the job makes them: from Parquet to Parquet, each read again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.schema import Table
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.calls import calls_of
from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
from celery_sqs_heartbeat.pipeline.tables.events import events_of, read_lines, rejects_of
from celery_sqs_heartbeat.pipeline.tables.in_flight import in_flight_of
from celery_sqs_heartbeat.pipeline.tables.recommendations import recommendations_of
from celery_sqs_heartbeat.pipeline.tables.recoveries import recoveries_of
from celery_sqs_heartbeat.pipeline.tables.workers import workers_of
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

Read = Callable[[Table], DataFrame]

#: In an order in which each comes after those that it is made of.
TABLES: Mapping[Table, Callable[[Read], DataFrame]] = {
    schema.WORKERS: lambda read: workers_of(read(schema.EVENTS)),
    schema.ATTEMPTS: lambda read: attempts_of(read(schema.EVENTS), read(schema.WORKERS)),
    schema.DUPLICATES: lambda read: duplicates_of(
        read(schema.ATTEMPTS), read(schema.EVENTS), read(schema.WORKERS)
    ),
    schema.RECOVERIES: lambda read: recoveries_of(read(schema.ATTEMPTS), read(schema.WORKERS)),
    schema.DURATIONS: lambda read: durations_of(read(schema.ATTEMPTS)),
    schema.IN_FLIGHT: lambda read: in_flight_of(read(schema.ATTEMPTS), read(schema.WORKERS)),
    schema.CALLS: lambda read: calls_of(read(schema.EVENTS), read(schema.WORKERS)),
    schema.RECOMMENDATIONS: lambda read: recommendations_of(
        read(schema.DURATIONS), read(schema.ATTEMPTS), read(schema.EVENTS), read(schema.WORKERS)
    ),
}


def make_tables(spark: SparkSession, events: Path, out: Path) -> dict[str, float]:
    """Make the tables of a warehouse's events in another; return the seconds of each."""
    source, target = Warehouse(spark, str(events)), Warehouse(spark, str(out))
    seconds = {}
    for table, make in TABLES.items():
        began = time.monotonic()
        target.write(table, make(_reader(source, target)))
        seconds[table.name] = time.monotonic() - began
    return seconds


def read_journal(spark: SparkSession, journal: Path, out: Path) -> dict[str, float]:
    """Make `events` and `rejects` of a journal; return the seconds of each."""
    target = Warehouse(spark, str(out))
    seconds = {}
    for table, make in ((schema.EVENTS, events_of), (schema.REJECTS, rejects_of)):
        began = time.monotonic()
        target.write(table, make(read_lines(spark, str(journal))))
        seconds[table.name] = time.monotonic() - began
    return seconds


def _reader(source: Warehouse, target: Warehouse) -> Read:
    return lambda table: (source if table is schema.EVENTS else target).read(table)
