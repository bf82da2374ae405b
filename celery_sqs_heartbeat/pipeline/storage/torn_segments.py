"""Finds segments whose end is missing, or that can't be unpacked.

Each segment is unpacked once more, as one text. It is torn if there is no text, or if the text does
not end with a line break. If a file ends within a zstd frame other than the first, Spark takes that
for the end of the segment. So cut closed segments are found beforehand (`closed_segments`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.storage.closed_segments import ANY_SEGMENT, Closed
from celery_sqs_heartbeat.pipeline.storage.line_marks import CORRUPT, DAY, FILE, TORN, relative_path
from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of

#: For segments with a text: whether it ends with a line break, and the rest after the last one.
_ENDS = f"`{FILE}` string, `{DAY}` date, has_end boolean, `{CORRUPT}` string"


def torn_segments(spark: SparkSession, path: str, closed: Sequence[Closed]) -> DataFrame:
    """Return the torn segments: path, day, and the line without an end, if any.

    Args:
        path: The journal.
        closed: Its closed segments.
    """
    ddl = f"`{FILE}` string, `{DAY}` date, is_cut boolean"
    listed = spark.createDataFrame([(each.file, each.day, each.is_cut) for each in closed], ddl)
    is_cut, has_end = F.coalesce("is_cut", F.lit(False)), F.coalesce("has_end", F.lit(False))
    # An open segment is not listed, and has a text. A closed one without a text can't be unpacked.
    return (
        listed.join(_ends(spark, path), [FILE, DAY], "full")
        .where(is_cut | ~has_end)
        .select(FILE, DAY, CORRUPT, F.lit(True).alias(TORN))
    )


def _ends(spark: SparkSession, path: str) -> DataFrame:
    texts = (
        spark.read.option("ignoreCorruptFiles", "true")
        .option("ignoreMissingFiles", "true")
        .option("pathGlobFilter", ANY_SEGMENT)
        .text(path, wholetext=True)
    )
    if "dt" not in texts.columns:
        # There is no folder of a day.
        return frame_of(spark, [], _ENDS)
    has_end = F.col("value").endswith("\n")
    rest = F.substring_index(F.substring_index("value", "\n", -1), "\r", -1)
    return texts.select(
        relative_path(),
        F.col("dt").cast("date").alias(DAY),
        has_end.alias("has_end"),
        F.when(~has_end, rest).alias(CORRUPT),
    )
