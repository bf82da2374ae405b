"""The journal's lines as events: each once, on one clock."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION
from celery_sqs_heartbeat.pipeline.tables.lines import DAY, FIRST, LAST, read_lines
from celery_sqs_heartbeat.pipeline.tables.rejects import reason_against, rejects_of
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape
from celery_sqs_heartbeat.pipeline.tables.skew import skews_of

__all__ = ["events_of", "read_lines", "rejects_of"]


def events_of(lines: DataFrame) -> DataFrame:
    """Return the events of the days that are wanted.

    A line that is there twice, as it was shipped twice or its segment is there open and
    closed, is one event: a worker numbers its lines.
    """
    valid_lines = lines.where(reason_against().isNull())
    each_once = valid_lines.dropDuplicates(["wid", "seq"])
    on_one_clock = (
        each_once.join(F.broadcast(skews_of(valid_lines)), "wid", "left")
        .withColumn("skew_us", F.coalesce(F.col("skews")[F.col(DAY)], "usual", F.lit(0)))
        .withColumn("ts", F.col("ts") - F.col("skew_us"))
        .withColumn(PARTITION, day_of(F.col("ts")))
    )
    is_wanted = F.coalesce(F.col(PARTITION) >= F.col(FIRST), F.lit(True)) & F.coalesce(
        F.col(PARTITION) <= F.col(LAST), F.lit(True)
    )
    return shape(on_one_clock.where(is_wanted), EVENTS)
