"""Reads the lines of a journal's segments, and finds the segments that can't be read whole.

A segment that was cut or damaged after it was written reads in two ways. What Spark's reader
meets as the end of the file is a line without an end. What it meets as an error ends the job;
the lines before it are to be had with `ignoreCorruptFiles`, which says nothing. Then each closed
segment is unpacked once more as one text: one that gives none, or one without an end of line at
its end, is torn. Of one that was cut exactly between two frames, or to nothing, nothing shows
but the gap in `seq`, which `workers` counts.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.pipeline.days import no_day
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.places import spark_path

CORRUPT, FILE, DAY, TORN = "_corrupt", "_file", "_day", "_torn"
#: The worker's folder that the segment is in; empty where there is none.
FOLDER = "_folder"
#: The first and the last day that are wanted, or null: on every line, as a constant.
FIRST, LAST = "_first", "_last"

CLOSED = "seg-*.jsonl.zst"
#: The names of segments, in Spark's patterns: in this order one that is closed while they are
#: looked for is found.
SEGMENTS = ("seg-*.jsonl.open", CLOSED)
ANY_SEGMENT = "seg-*.jsonl.{zst,open}"
#: The path of a segment below its journal's folder.
_RELATIVE = r"dt=[^/]+/worker=[^/]+/[^/]+$"
_FIELDS = ", ".join(f"`{field.name}` {field.type}" for field in FIELDS)
SCHEMA = f"{_FIELDS}, `{CORRUPT}` string, dt date, worker string"
_ONE_DAY = datetime.timedelta(days=1)


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
    """
    path = spark_path(journal)
    with faults_told(journal):
        lines = _read_json(spark, path, strict=strict)
        torn = None if strict else _read_torn(spark, path)
        # Where Spark is remote, a missing folder shows only when it is asked.
        lines.schema  # noqa: B018
    if torn is not None:
        lines = lines.unionByName(torn.withColumn(FOLDER, F.lit("")), allowMissingColumns=True)
    return wanted(lines, first, last)


def wanted(lines: DataFrame, first: datetime.date | None, last: datetime.date | None) -> DataFrame:
    """Return the lines of these days' folders and of those beside them, marked with the days."""
    if first is not None:
        lines = lines.where(F.col(DAY) >= F.lit(first - _ONE_DAY))
    if last is not None:
        lines = lines.where(F.col(DAY) <= F.lit(last + _ONE_DAY))
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


def is_wanted(day: str) -> Column:
    """Return whether the day in this column is one of those that `read_lines` was asked for."""
    return F.coalesce(F.col(day) >= F.col(FIRST), F.lit(True)) & F.coalesce(
        F.col(day) <= F.col(LAST), F.lit(True)
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
            _relative_path(),
            F.col("dt").alias(DAY),
            F.coalesce("worker", F.lit("")).alias(FOLDER),
            F.lit(False).alias(TORN),
        )
    )


def _read_torn(spark: SparkSession, path: str) -> DataFrame | None:
    """Return the closed segments that can't be unpacked to their end; None if none is closed."""
    all_closed = spark.read.format("binaryFile").option("pathGlobFilter", CLOSED).load(path)
    if "dt" not in all_closed.columns:
        return None
    day = F.col("dt").cast("date").alias(DAY)
    whole = (
        spark.read.option("ignoreCorruptFiles", "true")
        .option("ignoreMissingFiles", "true")
        .option("pathGlobFilter", CLOSED)
        .text(path, wholetext=True)
        .where(F.col("value").endswith("\n"))
    )
    torn = all_closed.select(_relative_path(), day).join(
        whole.select(_relative_path(), day), [FILE, DAY], "left_anti"
    )
    return torn.withColumn(TORN, F.lit(True))


def _relative_path() -> Column:
    return F.regexp_extract("_metadata.file_path", _RELATIVE, 0).alias(FILE)
