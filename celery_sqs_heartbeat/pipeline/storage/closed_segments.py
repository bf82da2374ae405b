"""Lists a journal's closed segments, and finds incomplete ones."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.journal.reading import closed_segments, is_complete
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.line_marks import RELATIVE
from celery_sqs_heartbeat.pipeline.storage.path_checks import here
from celery_sqs_heartbeat.pipeline.storage.reach import spark_path
from celery_sqs_heartbeat.pipeline.storage.warehouse import between

CLOSED = "seg-*.jsonl.zst"
#: The names of segments, as Spark's patterns. In this order, a segment that is closed during the
#: search is found.
SEGMENTS = ("seg-*.jsonl.open", CLOSED)
ANY_SEGMENT = "seg-*.jsonl.{zst,open}"
#: Schema of Spark's format `binaryFile` and of the journal's folders. The content is never read.
SCHEMA = (
    "path string, modificationTime timestamp, length bigint, content binary, dt date, worker string"
)
#: An empty zstd frame has at most this many bytes (RFC 8878).
_EMPTY_FRAME_BYTES = 13
_PATH = re.compile(RELATIVE)


class CutSegmentError(Exception):
    """A part of a closed segment is missing. Spark would not always notice that."""


class Closed(NamedTuple):
    """A closed segment.

    Attributes:
        file: Its path relative to the journal's folder.
        day: The day of its folder.
        is_cut: Whether a part of it is certainly missing.
    """

    file: str
    day: datetime.date
    is_cut: bool


def closed_of(spark: SparkSession, journal: str, span: Span) -> list[Closed]:
    """Return the closed segments in the folders of these days.

    For a URL and on a cluster, only segments that are too short are known to be cut.

    Raises:
        OSError: One can't be read.
    """
    folder = here(journal, None)
    return list(_by_spark(spark, journal, span) if folder is None else closed_here(folder, span))


def closed_here(journal: Path, span: Span) -> Iterator[Closed]:
    """Yield the closed segments of a journal on this machine."""
    for path in closed_segments(journal):
        day = day_of_file(str(path))
        # A segment that is removed just now is not read either.
        with suppress(FileNotFoundError):
            if day is not None and day in span:
                yield Closed(path.relative_to(journal).as_posix(), day, not is_complete(path))


def _by_spark(spark: SparkSession, journal: str, span: Span) -> Iterator[Closed]:
    segments = (
        spark.read.format("binaryFile")
        .schema(SCHEMA)
        .option("pathGlobFilter", CLOSED)
        .option("ignoreMissingFiles", "true")
        .load(spark_path(journal))
    )
    days = between(segments, span.first, span.last)
    long = days.where(F.col("length") > _EMPTY_FRAME_BYTES).select("path").collect()
    whole = {_below(row["path"]) for row in long}
    # An empty file is only in the list, and in no frame.
    for file in map(unquote, segments.inputFiles()):
        day = day_of_file(file)
        if day is not None and day in span:
            yield Closed(_below(file), day, _below(file) not in whole)


def _below(file: str) -> str:
    match = _PATH.search(file)
    return match[0] if match else file
