"""Makes the tables as the daily job does: from Parquet to Parquet. Each table is read again."""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.pipeline.engine.jobs import write_tables
from celery_sqs_heartbeat.pipeline.engine.makers import MAKERS
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK
from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION, WORKERS, Table
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

#: How the seconds of each table are shown, by its name. The tables after the workers are made side
#: by side, as soon as their sources exist, and so their seconds are shown together.
TITLES = {each.name: each.name if each is WORKERS else "the other tables" for each in MAKERS}


def make_tables(
    spark: SparkSession,
    events: Path,
    out: Path,
    progress: Callable[[str], None],
    engine: str = SPARK,
) -> None:
    """Make the tables of a warehouse's events in another.

    Args:
        progress: Receives each title when its turn comes.
    """
    run = _linked(events, out)
    write_tables(engine_of(engine).warehouse(spark, str(out)), run, progress=_titles(progress))


def make_each(spark: SparkSession, events: Path, out: Path) -> Iterator[tuple[str, float]]:
    """Make the same tables one after another. Yield the name of each, and its seconds."""
    run = _linked(events, out)
    warehouse = Warehouse(spark, str(out))
    for table in MAKERS:
        began = time.monotonic()
        write_tables(warehouse, run, tables=(table,))
        yield table.name, time.monotonic() - began


def _linked(events: Path, out: Path) -> Days:
    """Let a new warehouse have the events of another. Return their days."""
    out.mkdir(parents=True)
    (out / EVENTS.name).symlink_to(events.absolute() / EVENTS.name)
    days = sorted(
        datetime.date.fromisoformat(folder.name.partition("=")[2])
        for folder in (events / EVENTS.name).glob(f"{PARTITION}=*")
    )
    return Days(days[0], days[-1])


def make_all(
    spark: SparkSession,
    journal: Path,
    out: Path,
    progress: Callable[[str], None],
    engine: str = SPARK,
) -> None:
    """Make `events`, `rejects` and the tables of a journal.

    Args:
        progress: Receives each title when its turn comes.
    """
    engine_of(engine).build(spark, str(journal), str(out), progress=_titles(progress))


def _titles(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return the title that the job may show for each table."""
    shown: set[str] = set()

    def show(name: str) -> None:
        table = name.replace(" ", "_")
        title = TITLES.get(table, table)
        if title not in shown:
            shown.add(title)
            progress(title)

    return show


def writing_cpu(spark: SparkSession, out: Path, cpu: Callable[[], float]) -> float:
    """Return about how many CPU seconds went into the tables' files.

    The largest table is written again, and read once more without writing. The other tables are
    assumed to need the same for each byte.
    """
    bytes_of = {table: _bytes_of(out, table) for table in MAKERS}
    largest = max(MAKERS, key=bytes_of.__getitem__)
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
