"""Reads a journal with Sail, or with Spark if it has other than complete lines."""

from __future__ import annotations

import datetime
import logging
import os
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Days, Span
from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.journal.reading import all_segments, open_segments
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine.sail.fallback import read_by_spark
from celery_sqs_heartbeat.pipeline.engine.sail.warehouse import SailWarehouse, folder_of, sweep
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.storage.closed_segments import SEGMENTS, closed_here
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.journal_days import days_between
from celery_sqs_heartbeat.pipeline.storage.line_frames import SCHEMA, missing_journal, wanted
from celery_sqs_heartbeat.pipeline.storage.line_marks import CORRUPT, DAY, FILE, FOLDER, TORN
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from celery_sqs_heartbeat.pipeline.tables.events import are_events, events_of
from celery_sqs_heartbeat.pipeline.tables.rejects import reason_against
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape

_log = logging.getLogger(__name__)


class _NotAllEventsError(Exception):
    """Some lines must be rejected."""


#: After this time, in seconds, a run is dead: no run takes a day.
_LEFT_BEHIND = 86_400.0


def ingest(
    spark: SparkSession,
    journal: str,
    warehouse: Warehouse,
    first: datetime.date | None,
    last: datetime.date | None,
    progress: Callable[[str], None],
) -> Days | None:
    """Write `events` and `rejects`, from which all other tables are made.

    Other arguments, result and errors are the same as for `Engine.build`.
    """
    progress("looking for the journal's days")
    assert isinstance(warehouse, SailWarehouse)
    source = folder_of(journal, "journal")
    run = journal_days(source, first, last)
    if run is not None:
        sweep(warehouse.path, older_than=time.time() - _LEFT_BEHIND)
        write_lines(spark, warehouse, source, run, progress)
    return run


def journal_days(
    journal: Path, first: datetime.date | None = None, last: datetime.date | None = None
) -> Days | None:
    """Return the range of the days between first and last that the journal has segments of.

    Raises:
        PipelineError: There is no such journal.
    """
    try:
        # To `glob`, an unreadable folder looks empty.
        os.scandir(journal).close()
    except (FileNotFoundError, NotADirectoryError):
        raise missing_journal(str(journal)) from None
    except OSError as error:
        raise PipelineError(f"the journal can't be read: {error}") from None
    days = (day_of_file(str(segment)) for segment in all_segments(journal))
    return days_between(filter(None, days), first, last)


def write_lines(
    spark: SparkSession,
    warehouse: SailWarehouse,
    journal: Path,
    run: Days,
    progress: Callable[[str], None],
) -> None:
    """Write `events` and `rejects`, like the function of that name for Spark.

    Nearly always every line is an event, exists once, and has a correct clock. So the lines are
    written unchanged and checked afterwards, which takes a tenth of a second for a million lines.
    If a clock was wrong or lines exist twice, they are written again from there.
    """
    progress("events")
    for is_last in (False, True):
        before = open_segments(journal)
        try:
            _refuse_cut(journal, run.grown(2, 2))
            _by_sail(spark, warehouse, journal, run)
        except (PySparkException, _NotAllEventsError) as error:
            # A segment that is closed while it is read does not exist any more under that name.
            if not is_last and set(before) - set(open_segments(journal)):
                continue
            _log.warning(
                "some lines or segments of %s are not as workers write them, and Sail can't skip "
                "those: Spark reads the journal instead",
                journal,
            )
            progress("events and rejects, with Spark")
            read_by_spark(journal, warehouse.path, run, error)
        return


def _refuse_cut(journal: Path, days: Days) -> None:
    """Refuse a journal with a missing part, because Sail would not always notice that.

    Raises:
        _NotAllEventsError: A part is missing.
    """
    if any(each.is_cut for each in closed_here(journal, Span(days.first, days.last))):
        raise _NotAllEventsError("a part of a segment is missing")


def _by_sail(spark: SparkSession, warehouse: SailWarehouse, journal: Path, run: Days) -> None:
    """Write both tables of a faultless journal."""
    around = run.grown(1, 1)

    def revise(written: DataFrame) -> DataFrame | None:
        # A worker puts a line into the folder of its day and of the worker.
        read_again = _marked(written, PARTITION, "wid")
        if not read_again.where(reason_against().isNotNull()).isEmpty():
            raise _NotAllEventsError("some lines are not events")
        if are_events(read_again):
            return None
        return events_of(wanted(read_again, around.first, around.last))

    as_they_are = {PARTITION: day_of(F.col("ts")), "skew_us": F.lit(0)}
    lines = _read_lines(spark, journal, around).withColumns(as_they_are)
    events = shape(lines, schema.EVENTS)
    warehouse.write(schema.EVENTS, events, around.first, around.last, revise)
    warehouse.write(schema.REJECTS, warehouse.nothing(schema.REJECTS), run.first, run.last)


def _read_lines(spark: SparkSession, journal: Path, days: Days) -> DataFrame:
    """Return lines like `read_lines`, if all of them are complete."""
    kinds = [
        spark.read.schema(SCHEMA).option("pathGlobFilter", kind).json(str(journal))
        for kind in SEGMENTS
    ]
    lines = _marked(reduce(DataFrame.unionByName, kinds), "dt", "worker")
    return wanted(lines, days.first, days.last)


def _marked(rows: DataFrame, day: str, folder: str) -> DataFrame:
    """Return rows in the form of lines. Sail does not report a line's file and text.

    Args:
        day: The column with the day of the line's folder.
        folder: The column with the worker's folder.
    """
    nothing = F.lit(None).cast("string")
    return rows.select(
        *(field.name for field in FIELDS),
        nothing.alias(CORRUPT),
        nothing.alias(FILE),
        F.col(day).alias(DAY),
        F.coalesce(folder, F.lit("")).alias(FOLDER),
        F.lit(False).alias(TORN),
    )
