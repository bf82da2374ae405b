"""Finds a journal's segments without reading them."""

from __future__ import annotations

import datetime
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.days import Days
from celery_sqs_heartbeat.pipeline.tables.lines import journal_path, read_lines

#: Of Spark's format `binaryFile`, and of the journal's folders. The content is never asked for.
SCHEMA = (
    "path string, modificationTime timestamp, length bigint, content binary, dt date, worker string"
)
CLOSED = "seg-*.jsonl.zst"
_ALL = "seg-*.jsonl.{zst,open}"


def journal_bytes(spark: SparkSession, journal: str) -> int:
    """Return how large a journal's segments are together.

    Raises:
        PipelineError: There is no such journal.
    """
    read_lines(spark, journal)
    (row,) = _segments(spark, journal).agg(F.sum("length").alias("bytes")).collect()
    return row["bytes"] or 0


def journal_days(
    spark: SparkSession,
    journal: str,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
) -> Days | None:
    """Return the range of the days between first and last that the journal has segments of.

    Raises:
        PipelineError: There is no such journal.
    """
    read_lines(spark, journal)
    found = [row["dt"] for row in _segments(spark, journal).select("dt").distinct().collect()]
    return days_between(found, first, last)


def _segments(spark: SparkSession, journal: str) -> DataFrame:
    return (
        spark.read.format("binaryFile")
        .schema(SCHEMA)
        .option("pathGlobFilter", _ALL)
        .load(journal_path(journal))
    )


def days_between(
    days: Collection[datetime.date | None],
    first: datetime.date | None = None,
    last: datetime.date | None = None,
) -> Days | None:
    """Return the range of those days that are between first and last; None for none."""
    wanted = [
        day
        for day in days
        if day is not None and (first is None or first <= day) and (last is None or day <= last)
    ]
    return Days(min(wanted), max(wanted)) if wanted else None
