"""Lines and segments that could not be read. They are counted, never silently lost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import EVENTS, VERSION
from celery_sqs_heartbeat.pipeline.schema import REJECTS
from celery_sqs_heartbeat.pipeline.storage.line_marks import CORRUPT, DAY, FILE, TORN, is_wanted
from celery_sqs_heartbeat.pipeline.tables.shaping import shape

TORN_SEGMENT = "torn segment"
CORRUPT_LINE = "corrupt line"
UNKNOWN_VERSION = "unknown version"
UNKNOWN_EVENT = "unknown event"

_REASONS = (TORN_SEGMENT, CORRUPT_LINE, UNKNOWN_VERSION, UNKNOWN_EVENT)
_REQUIRED = ("ts", "seq", "ev", "wid")


def reason_against() -> Column:
    """Return why a line is not an event; null if it is one."""
    lacks_something = F.greatest(*(F.col(name).isNull() for name in _REQUIRED))
    return (
        F.when(F.col(TORN), TORN_SEGMENT)
        .when(F.col(CORRUPT).isNotNull() | F.col("v").isNull(), CORRUPT_LINE)
        .when(F.col("v") != VERSION, UNKNOWN_VERSION)
        .when(lacks_something, CORRUPT_LINE)
        .when(~F.col("ev").isin(*EVENTS), UNKNOWN_EVENT)
    )


def rejects_of(lines: DataFrame) -> DataFrame:
    """Return how many lines of each segment are not events, by reason.

    They count for the day of their folder, because their own time can't be trusted. The rest of a
    torn segment's last line does not count as a line.
    """
    rejected = (
        lines.where(is_wanted(DAY))
        .withColumn("reason", reason_against())
        .where(F.col("reason").isNotNull())
    )
    by_text = rejected.groupBy(FILE, DAY, CORRUPT).agg(
        *(F.count_if(F.col("reason") == reason).alias(reason) for reason in _REASONS)
    )
    is_rest = F.col(CORRUPT).isNotNull() & (F.col(TORN_SEGMENT) > 0)
    others = F.col(CORRUPT_LINE) - F.when(is_rest, 1).otherwise(0)
    by_segment = (
        by_text.withColumn(CORRUPT_LINE, F.greatest(others, F.lit(0)))
        .groupBy(FILE, DAY)
        .agg(*(F.sum(reason).alias(reason) for reason in _REASONS))
    )
    counts = (
        F.struct(F.lit(name).alias("reason"), F.col(name).alias("lines")) for name in _REASONS
    )
    by_reason = by_segment.select(
        F.col(FILE).alias("file"), F.col(DAY).alias("dt"), F.explode(F.array(*counts)).alias("one")
    )
    return shape(by_reason.select("file", "dt", "one.*").where("lines > 0"), REJECTS)
