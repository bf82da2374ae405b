"""Reads the lines of a journal's segments.

A segment may be cut or damaged after it was written. Spark's reader then sees one of these:

- The end of the file: the last line has no end, or is missing without a trace. So segments are
  checked first (`closed_segments`).
- An error, which ends the job. With `ignoreCorruptFiles` Spark returns the lines before it, but no
  error. Then each segment is unpacked once more (`torn_segments`).

If a segment was cut exactly between two frames, or on a cluster in any frame except the first, only
the gap in `seq` shows that. `workers` counts such gaps.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.storage.closed_segments import (
    ANY_SEGMENT,
    CutSegmentError,
    closed_of,
)
from celery_sqs_heartbeat.pipeline.storage.day_folders import no_day
from celery_sqs_heartbeat.pipeline.storage.line_marks import (
    CORRUPT,
    DAY,
    FIRST,
    FOLDER,
    LAST,
    TORN,
    relative_path,
)
from celery_sqs_heartbeat.pipeline.storage.reach import spark_path
from celery_sqs_heartbeat.pipeline.storage.torn_segments import torn_segments

_FIELDS = ", ".join(f"`{field.name}` {field.type}" for field in FIELDS)
SCHEMA = f"{_FIELDS}, `{CORRUPT}` string, dt date, worker string"


def read_lines(
    spark: SparkSession,
    journal: str,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
    *,
    strict: bool = False,
) -> DataFrame:
    """Return the lines of a journal, and a line marked `_torn` for each torn segment.

    It reads the folders of the requested days, and of one more day before and after. A line that
    was late at midnight is in the next folder, and a wrong clock may have put it into either.
    `events_of` keeps only the requested days.

    Args:
        journal: A folder, or a URL that Spark can read: `file:`, `s3a:`, or `s3:` instead of that.
        first: The first requested day; None for all.
        last: The last requested day.
        strict: Fail the job for a torn segment, so that not all are unpacked twice. Also fail it
            if a worker closes a segment meanwhile, because that has another name then.

    Raises:
        PipelineError: There is no such journal.
        CutSegmentError: A part of a segment is missing, and `strict` is set.
        OSError: A segment can't be read.
    """
    path, around = spark_path(journal), Span(first, last).grown(1)
    with clear_errors(journal):
        lines = _read_json(spark, path, strict=strict)
        # If Spark is remote, a missing folder shows only when the schema is requested.
        lines.schema  # noqa: B018
        closed = closed_of(spark, journal, around)
    if not strict:
        torn = torn_segments(spark, path, closed).withColumn(FOLDER, F.lit(""))
        lines = lines.unionByName(torn, allowMissingColumns=True)
    elif cut := sum(each.is_cut for each in closed):
        raise CutSegmentError(f"a part of {cut} segments is missing")
    return wanted(lines, first, last)


def wanted(lines: DataFrame, first: datetime.date | None, last: datetime.date | None) -> DataFrame:
    """Return the lines of these days' folders and of the days beside, marked with the days."""
    around = Span(first, last).grown(1)
    if around.first is not None:
        lines = lines.where(F.col(DAY) >= F.lit(around.first))
    if around.last is not None:
        lines = lines.where(F.col(DAY) <= F.lit(around.last))
    return lines.withColumns(
        {FIRST: F.lit(first).cast("date"), LAST: F.lit(last).cast("date")},
    )


@contextmanager
def clear_errors(journal: str) -> Iterator[None]:
    """Raise a readable error for a journal that is missing or has a folder of no valid day.

    Raises:
        PipelineError: In place of Spark's error.
    """
    try:
        yield
    except PySparkException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise missing_journal(journal) from None
        if error.getCondition() == "INVALID_PARTITION_VALUE":
            day = str((error.getMessageParameters() or {}).get("value")).strip("'")
            raise no_day(journal, day) from None
        raise


def missing_journal(journal: str) -> PipelineError:
    """Return the error about a missing journal."""
    return PipelineError(
        f"there is no journal at {journal!r}: give the folder or URL that "
        "sqs_heartbeat_journal names, which contains folders dt=YYYY-MM-DD"
    )


def _read_json(spark: SparkSession, path: str, *, strict: bool) -> DataFrame:
    return (
        spark.read.schema(SCHEMA)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", CORRUPT)
        .option("ignoreCorruptFiles", str(not strict).lower())
        .option("ignoreMissingFiles", str(not strict).lower())
        .option("pathGlobFilter", ANY_SEGMENT)
        .json(path)
        .select(
            *(field.name for field in FIELDS),
            CORRUPT,
            relative_path(),
            F.col("dt").alias(DAY),
            F.coalesce("worker", F.lit("")).alias(FOLDER),
            F.lit(False).alias(TORN),
        )
    )
