"""The tables in Spark, as the job makes them: from Parquet to Parquet, each read again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.jobs import build
from celery_sqs_heartbeat.pipeline.making import TURNS
from celery_sqs_heartbeat.pipeline.schema import Table
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.calls import calls_of
from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
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


def make_tables(
    spark: SparkSession, events: Path, out: Path, progress: Callable[[str], None]
) -> None:
    """Make the tables of a warehouse's events in another.

    Args:
        progress: Is told each table when its turn comes.
    """
    source, target = Warehouse(spark, str(events)), Warehouse(spark, str(out))
    for table, make in TABLES.items():
        progress(table.name)
        target.write(table, make(_reader(source, target)))


def make_all(
    spark: SparkSession, journal: Path, out: Path, progress: Callable[[str], None]
) -> None:
    """Make `events`, `rejects` and the tables of a journal, as the daily job does.

    Args:
        progress: Is told of the tables that are made side by side as of one.
    """
    side_by_side = {table.name.replace("_", " ") for turn in TURNS[1:] for table in turn}
    told: set[str] = set()

    def tell(name: str) -> None:
        title = "side by side" if name in side_by_side else name
        if title not in told:
            told.add(title)
            progress(title)

    build(spark, str(journal), str(out), progress=tell)


def writing_cpu(spark: SparkSession, out: Path, cpu: Callable[[], float]) -> float:
    """Return about how many CPU seconds went into the tables' files.

    The largest of those tables is written again, and read once more without that; of the others
    as many are assumed for each byte.
    """
    bytes_of = {table: _bytes_of(out, table) for table in TABLES}
    largest = max(TABLES, key=bytes_of.__getitem__)
    rows = Warehouse(spark, str(out)).read(largest)
    began = cpu()
    rows.write.mode("overwrite").format("noop").save()
    was_read = cpu()
    again = out / "again"
    Warehouse(spark, str(again)).write(largest, rows)
    spent = max(cpu() - was_read - (was_read - began), 0.0)
    shutil.rmtree(again)
    return spent * sum(bytes_of.values()) / max(bytes_of[largest], 1)


def _bytes_of(warehouse: Path, table: Table) -> int:
    return sum(path.stat().st_size for path in (warehouse / table.name).rglob("*.parquet"))


def _reader(source: Warehouse, target: Warehouse) -> Read:
    return lambda table: (source if table is schema.EVENTS else target).read(table)
