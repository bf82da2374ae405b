"""Lines and segments that could not be read: counted, never silently lost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.events import EVENTS, VERSION
from celery_sqs_heartbeat.pipeline.schema import REJECTS
from celery_sqs_heartbeat.pipeline.tables.lines import CORRUPT, DAY, FILE, TORN, is_wanted
from celery_sqs_heartbeat.pipeline.tables.shaping import shape

TORN_SEGMENT = "torn segment"
CORRUPT_LINE = "corrupt line"
UNKNOWN_VERSION = "unknown version"
UNKNOWN_EVENT = "unknown event"

_REQUIRED = ("ts", "seq", "ev", "wid")


def reason_against() -> Column:
    """Return why a line is no event; null where it is one.

    A line without an end is what is left of a torn one.
    """
    is_corrupt = F.col(CORRUPT).isNotNull()
    lacks_something = F.greatest(*(F.col(name).isNull() for name in _REQUIRED))
    return (
        F.when(F.col(TORN) | (is_corrupt & ~F.col(CORRUPT).endswith("}")), TORN_SEGMENT)
        .when(is_corrupt | F.col("v").isNull(), CORRUPT_LINE)
        .when(F.col("v") != VERSION, UNKNOWN_VERSION)
        .when(lacks_something, CORRUPT_LINE)
        .when(~F.col("ev").isin(*EVENTS), UNKNOWN_EVENT)
    )


def rejects_of(lines: DataFrame) -> DataFrame:
    """Return how many lines of each segment are no events, by the reason.

    They count for the day of their folder: their own time can't be trusted.
    """
    lines_by_reason = (
        lines.where(is_wanted(DAY))
        .withColumn("reason", reason_against())
        .where(F.col("reason").isNotNull())
        .groupBy(F.col(FILE).alias("file"), "reason", F.col(DAY).alias("dt"))
        .agg(F.count(F.lit(1)).alias("lines"))
    )
    lines_known = F.when(F.col("reason") == TORN_SEGMENT, 1).otherwise(F.col("lines"))
    return shape(lines_by_reason.withColumn("lines", lines_known), REJECTS)
