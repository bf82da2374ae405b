"""Reads a journal's segments as lines, and finds those that are incomplete.

A segment may be cut or damaged after it was written. Spark's reader then returns the lines before
the damage, but no error (`ignoreCorruptFiles`). So each segment is unpacked once more, as one text.
It is torn if there is no text, or if the text does not end with a line break.

If a file ends within a zstd frame other than the first, Spark takes that for the end of the
segment. On this machine, such segments are found by unpacking each closed segment. If one
was cut exactly between two frames, or on a cluster in any frame except the first, only the gap in
`seq` shows that. `workers` counts such gaps.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Days, Span
from celery_sqs_heartbeat.journal.checking import date_of, local_folder, no_day_text
from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.journal.reading import all_segments, closed_segments, is_complete
from celery_sqs_heartbeat.pipeline.faults import PipelineError
from celery_sqs_heartbeat.pipeline.path_checks import here
from celery_sqs_heartbeat.pipeline.spark import between, frame_of, is_out_of_reach, spark_path
from celery_sqs_heartbeat.pipeline.tables.events import (
    CORRUPT,
    DAY,
    FILE,
    FIRST,
    FOLDER,
    LAST,
    TORN,
)

#: The names of segments, as one of Spark's patterns, and the end of a closed one's.
_ANY_SEGMENT, _CLOSED = "seg-*.jsonl.{zst,open}", ".zst"
_FIELDS = ", ".join(f"`{field.name}` {field.type}" for field in FIELDS)
_SCHEMA = f"{_FIELDS}, `{CORRUPT}` string, dt date, worker string"
#: Schema of Spark's format `binaryFile` and of the journal's folders. The content is never read.
_FILES = (
    "path string, modificationTime timestamp, length bigint, content binary, dt date, worker string"
)
#: The path of a segment relative to its journal's folder.
_RELATIVE = r"dt=([^/]+)/worker=[^/]+/[^/]+$"
_PATH = re.compile(_RELATIVE)
#: For segments with a text: whether it ends with a line break, and the rest after the last one.
_ENDS = f"`{FILE}` string, `{DAY}` date, has_end boolean, `{CORRUPT}` string"
#: Days before and after a run whose folders may have lines of its days (`jobs`).
_AROUND = 2


def read_lines(
    spark: SparkSession,
    journal: str,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
) -> DataFrame:
    """Return the lines of a journal, and a line marked `_torn` for each torn segment.

    It reads the folders of the requested days, and of one more day before and after. A line that
    was late at midnight is in the next folder, and a wrong clock may have put it into either.
    `events_of` keeps only the requested days.

    A worker that closes a segment meanwhile renames it. Then a job over the lines fails with
    `FAILED_READ_FILE.FILE_NOT_EXIST`, so that no line is lost.

    Args:
        journal: A folder, or a URL that Spark can read: `file:`, `s3a:`, or `s3:` instead of that.
        first: The first requested day; None for all.
        last: The last requested day.

    Raises:
        PipelineError: There is no such journal.
        OSError: A segment can't be read.
    """
    path, around = spark_path(journal), Span(first, last).grown(1)
    with _clear_errors(journal):
        lines = _read_json(spark, path)
        # If Spark is remote, a missing folder shows only when the schema is requested.
        lines.schema  # noqa: B018
        torn = _torn_segments(spark, journal, around).withColumn(FOLDER, F.lit(""))
    everything = lines.unionByName(torn, allowMissingColumns=True)
    return between(everything, around.first, around.last, DAY).withColumns(
        {FIRST: F.lit(first).cast("date"), LAST: F.lit(last).cast("date")},
    )


def journal_days(
    spark: SparkSession,
    journal: str,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
) -> Days | None:
    """Return the range of the days between first and last that the journal has segments of.

    Raises:
        PipelineError: There is no such journal, or it has a folder of no valid day.
    """
    # The list of files is enough. Querying a column of it would be a Spark job over all files.
    with _clear_errors(journal):
        files = _segments(spark, journal).inputFiles()
    if not files and local_folder(journal) is None:
        # A URL was not checked before.
        raise _missing(journal)
    days = sorted(day for file in files if (day := _day_of(file)) and day in Span(first, last))
    return Days(days[0], days[-1]) if days else None


def count_segments(spark: SparkSession, journal: str, span: Span) -> int:
    """Return how many segments a journal has in the folders of these days."""
    folder = local_folder(journal)
    files = (
        _segments(spark, journal).inputFiles()
        if folder is None
        # Each once, including one that is closed just now.
        else map(str, all_segments(folder.absolute()))
    )
    days = (_day_of(file) for file in files)
    return sum(day is not None and day in span for day in days)


@contextmanager
def within_reach(
    spark: SparkSession, journal: str, span: Span, progress: Callable[[str], None]
) -> Iterator[str]:
    """Provide a folder with a copy of the journal's days if it is out of reach, else the journal.

    Args:
        spark: The session that reads it.

    Raises:
        FetchError: It can't be copied.
    """
    if not is_out_of_reach(spark, journal):
        yield journal
        return
    # Imported here because boto3 takes a tenth of a second, and most journals are in a folder.
    from celery_sqs_heartbeat.journal.reading import fetched

    progress("copying the journal from S3")
    with fetched(journal, span.grown(_AROUND)) as folder:
        yield str(folder)


def _read_json(spark: SparkSession, path: str) -> DataFrame:
    return (
        spark.read.schema(_SCHEMA)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", CORRUPT)
        .option("ignoreCorruptFiles", "true")
        .option("pathGlobFilter", _ANY_SEGMENT)
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


def _torn_segments(spark: SparkSession, journal: str, span: Span) -> DataFrame:
    """Return the torn segments of these days: path, day, and the line without an end, if any."""
    ddl = f"`{FILE}` string, `{DAY}` date, is_cut boolean"
    listed = frame_of(spark, list(_closed(spark, journal, span)), ddl)
    is_cut, has_end = F.coalesce("is_cut", F.lit(False)), F.coalesce("has_end", F.lit(False))
    # An open segment is not listed, and has a text. A closed one without a text can't be unpacked.
    return (
        listed.join(_ends(spark, journal), [FILE, DAY], "full")
        .where(is_cut | ~has_end)
        .select(FILE, DAY, CORRUPT, F.lit(True).alias(TORN))
    )


def _closed(spark: SparkSession, journal: str, span: Span) -> Iterator[dict[str, Any]]:
    """Yield the closed segments, and on this machine whether a part of it is certainly missing.

    Raises:
        OSError: One can't be read.
    """
    folder = here(journal)
    files = _segments(spark, journal).inputFiles() if folder is None else closed_segments(folder)
    for file in map(str, files):
        found, day = _PATH.search(file), _day_of(file)
        if found is None or day is None or day not in span or not file.endswith(_CLOSED):
            continue
        # A segment that is removed just now is not read either.
        with suppress(FileNotFoundError):
            is_cut = folder is not None and not is_complete(Path(file))
            yield {FILE: found[0], DAY: day, "is_cut": is_cut}


def _ends(spark: SparkSession, journal: str) -> DataFrame:
    texts = (
        spark.read.option("ignoreCorruptFiles", "true")
        .option("pathGlobFilter", _ANY_SEGMENT)
        .text(spark_path(journal), wholetext=True)
    )
    if "dt" not in texts.columns:
        # There is no folder of a day.
        return frame_of(spark, [], _ENDS)
    has_end = F.col("value").endswith("\n")
    rest = F.substring_index(F.substring_index("value", "\n", -1), "\r", -1)
    return texts.select(
        _relative_path(),
        F.col("dt").cast("date").alias(DAY),
        has_end.alias("has_end"),
        F.when(~has_end, rest).alias(CORRUPT),
    )


def _segments(spark: SparkSession, journal: str) -> DataFrame:
    return (
        spark.read.format("binaryFile")
        .schema(_FILES)
        .option("pathGlobFilter", _ANY_SEGMENT)
        .load(spark_path(journal))
    )


def _relative_path() -> Column:
    return F.regexp_extract("_metadata.file_path", _RELATIVE, 0).alias(FILE)


def _day_of(segment: str) -> datetime.date | None:
    """Return the day whose folder a segment is in; None if it is in none.

    Raises:
        PipelineError: The folder's name is not a valid day.
    """
    match = _PATH.search(segment)
    try:
        return date_of(match[1]) if match else None
    except ValueError as error:
        raise PipelineError(f"{segment!r} {error}") from None


@contextmanager
def _clear_errors(journal: str) -> Iterator[None]:
    """Raise a readable error for a journal that is missing or has a folder of no valid day.

    Raises:
        PipelineError: In place of Spark's error.
    """
    try:
        yield
    except PySparkException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise _missing(journal) from None
        if error.getCondition() == "INVALID_PARTITION_VALUE":
            day = str((error.getMessageParameters() or {}).get("value")).strip("'")
            raise PipelineError(f"{journal!r} {no_day_text(day)}") from None
        raise


def _missing(journal: str) -> PipelineError:
    return PipelineError(
        f"there is no journal at {journal!r}: give the folder or URL that "
        "sqs_heartbeat_journal names, which contains folders dt=YYYY-MM-DD"
    )
