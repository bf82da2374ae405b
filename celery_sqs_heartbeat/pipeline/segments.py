"""Finds a journal's segments without reading them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline.days import Days, day_of_file
from celery_sqs_heartbeat.pipeline.places import spark_path
from celery_sqs_heartbeat.pipeline.tables.lines import ANY_SEGMENT, faults_told

#: Of Spark's format `binaryFile`, and of the journal's folders. The content is never asked for.
SCHEMA = (
    "path string, modificationTime timestamp, length bigint, content binary, dt date, worker string"
)


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
    # The list of files is there, and to ask Spark for a column of it would be a job over them.
    with faults_told(journal):
        files = _segments(spark, journal).inputFiles()
    days = {day for file in files if (day := day_of_file(file))}
    return days_between(days, first, last)


def _segments(spark: SparkSession, journal: str) -> DataFrame:
    return (
        spark.read.format("binaryFile")
        .schema(SCHEMA)
        .option("pathGlobFilter", ANY_SEGMENT)
        .load(spark_path(journal))
    )


def days_between(
    days: Iterable[datetime.date],
    first: datetime.date | None = None,
    last: datetime.date | None = None,
) -> Days | None:
    """Return the range of those days that are between first and last; None for none."""
    wanted = [
        day for day in days if (first is None or first <= day) and (last is None or day <= last)
    ]
    return Days(min(wanted), max(wanted)) if wanted else None
