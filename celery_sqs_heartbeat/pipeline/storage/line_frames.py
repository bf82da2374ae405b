"""Reads the lines of a journal's segments.

A segment that was cut or damaged after it was written reads in three ways. What Spark's reader
meets as the end of the file is a line without an end, or nothing at all; so segments are looked at
first (`closed_segments`). What it meets as an error ends the job; the lines before it are to be
had with `ignoreCorruptFiles`, which says nothing. Then each segment is unpacked once more
(`torn_segments`). Of one that was cut exactly between two frames, or on a cluster in any but the
first, nothing shows but the gap in `seq`, which `workers` counts.
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

    Only the folders of the days that are wanted are read, and of one more on either side: a
    line that was late at midnight is in the next, and a clock that is wrong may have put it
    into either. `events_of` keeps the days that are wanted.

    Args:
        journal: A folder, or a URL that Spark can read: `file:`, `s3a:`, or `s3:` for that.
        first: The first day that is wanted; None for all.
        last: The last one.
        strict: Let a torn segment fail the job, which spares to unpack all of them twice, and one
            that its worker closes meanwhile: it is there under another name then.

    Raises:
        PipelineError: There is no such journal.
        CutSegmentError: A part of a segment is missing, and that is to fail the job.
        OSError: A segment can't be read.
    """
    path, around = spark_path(journal), Span(first, last).grown(1)
    with faults_told(journal):
        lines = _read_json(spark, path, strict=strict)
        # Where Spark is remote, a missing folder shows only when it is asked.
        lines.schema  # noqa: B018
        closed = closed_of(spark, journal, around)
    if not strict:
        torn = torn_segments(spark, path, closed).withColumn(FOLDER, F.lit(""))
        lines = lines.unionByName(torn, allowMissingColumns=True)
    elif cut := sum(each.is_cut for each in closed):
        raise CutSegmentError(f"a part of {cut} segments is missing")
    return wanted(lines, first, last)


def wanted(lines: DataFrame, first: datetime.date | None, last: datetime.date | None) -> DataFrame:
    """Return the lines of these days' folders and of those beside them, marked with the days."""
    around = Span(first, last).grown(1)
    if around.first is not None:
        lines = lines.where(F.col(DAY) >= F.lit(around.first))
    if around.last is not None:
        lines = lines.where(F.col(DAY) <= F.lit(around.last))
    return lines.withColumns(
        {FIRST: F.lit(first).cast("date"), LAST: F.lit(last).cast("date")},
    )


@contextmanager
def faults_told(journal: str) -> Iterator[None]:
    """Tell of a journal that is not there, or has a folder of no day, by its name.

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
    """Return the error about a journal that is not there."""
    return PipelineError(
        f"there is no journal at {journal!r}: give the folder or URL that "
        "sqs_heartbeat_journal names, in which there are folders dt=YYYY-MM-DD"
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
