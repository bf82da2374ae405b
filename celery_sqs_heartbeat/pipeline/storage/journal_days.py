"""Finds a journal's segments without reading them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.common.days import Days, Span
from celery_sqs_heartbeat.journal.checking import local_folder
from celery_sqs_heartbeat.journal.reading import all_segments
from celery_sqs_heartbeat.pipeline.storage.closed_segments import ANY_SEGMENT, SCHEMA
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.line_frames import clear_errors, missing_journal
from celery_sqs_heartbeat.pipeline.storage.reach import spark_path


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
    # The list of files is enough. Querying a column of it would be a Spark job over all files.
    with clear_errors(journal):
        files = _segments(spark, journal).inputFiles()
    if not files and local_folder(journal) is None:
        # A URL was not checked before.
        raise missing_journal(journal)
    days = {day for file in files if (day := day_of_file(file))}
    return days_between(days, first, last)


def count_segments(spark: SparkSession, journal: str, span: Span) -> int:
    """Return how many segments a journal has in the folders of these days."""
    folder = local_folder(journal)
    files = (
        _segments(spark, journal).inputFiles()
        if folder is None
        # Each once, including one that is closed just now.
        else map(str, all_segments(folder.absolute()))
    )
    days = (day_of_file(file) for file in files)
    return sum(day is not None and day in span for day in days)


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
    """Return the range of those days that are between first and last; None if there are none."""
    wanted = [
        day for day in days if (first is None or first <= day) and (last is None or day <= last)
    ]
    return Days(min(wanted), max(wanted)) if wanted else None
