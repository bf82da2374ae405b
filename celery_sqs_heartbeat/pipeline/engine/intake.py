"""Reads a journal: its lines become the tables `events` and `rejects`."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.storage.closed_segments import CutSegmentError
from celery_sqs_heartbeat.pipeline.storage.journal_days import journal_days
from celery_sqs_heartbeat.pipeline.storage.line_frames import read_lines
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from celery_sqs_heartbeat.pipeline.tables.events import Rejected, events_of
from celery_sqs_heartbeat.pipeline.tables.rejects import rejects_of

#: How often the journal is read strictly. A worker closes a segment every five minutes, so another
#: one is hardly closed while the segments of the same few workers are read again.
READS = 3


class Lines(Protocol):
    """Returns a journal's lines, like `read_lines`."""

    def __call__(
        self, first: datetime.date, last: datetime.date, *, strict: bool = False
    ) -> DataFrame:
        """Return the lines of the days, and of one more day before and after."""
        ...


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
    run = journal_days(spark, journal, first, last)
    if run is not None:
        lines = partial(read_lines, spark, journal)
        write_lines(warehouse, lines, run, progress)
    return run


def write_lines(
    warehouse: Warehouse, lines: Lines, run: Days, progress: Callable[[str], None]
) -> None:
    """Write `events` and `rejects`.

    Nearly always every line is an event, and no segment is torn. Then one read is enough: it is
    strict, and counts rejected lines. If a segment was closed meanwhile, all are listed and read
    again, at most `READS` times. Otherwise they are read as far as possible.
    """
    around = run.grown(1, 1)
    progress("events")
    is_clean = _write_strictly(warehouse, lines, around, progress)
    if is_clean is None:
        progress("events, without what can't be read")
        events = events_of(warehouse.held(lines(around.first, around.last)))
        warehouse.write(schema.EVENTS, events, around.first, around.last)
        is_clean = False
    rejects = warehouse.nothing(schema.REJECTS)
    if not is_clean:
        progress("rejects")
        rejects = rejects_of(lines(run.first, run.last))
    warehouse.write(schema.REJECTS, rejects, run.first, run.last)


def _write_strictly(
    warehouse: Warehouse, lines: Lines, days: Days, progress: Callable[[str], None]
) -> bool | None:
    """Write `events`. Return whether every line is one, or None if a segment can't be read."""
    for reads_left in reversed(range(READS)):
        rejected = Rejected()
        try:
            events = events_of(warehouse.held(lines(days.first, days.last, strict=True)), rejected)
            warehouse.write(schema.EVENTS, events, days.first, days.last)
        except CutSegmentError:
            return None
        except Exception as error:
            # Spark has no class for this error: it comes from the JVM, or from a remote one.
            if "FAILED_READ_FILE" not in str(error):
                raise
            if reads_left and "FAILED_READ_FILE.FILE_NOT_EXIST" in str(error):
                progress("events again, because a worker closed a segment meanwhile")
                continue
            return None
        return rejected.count() == 0
    return None
