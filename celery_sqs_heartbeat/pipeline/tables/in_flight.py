"""Messages in flight by queue and minute.

Within each minute the changes are sorted and added up, starting from a level of 0. Then the net
changes of the minutes are added up by queue. Nothing longer than a minute is sorted, so one hot
queue does not put the work on one core. A change is an integer, and the changes of a minute are an
array, because sorting that is faster than a window over rows.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import IN_FLIGHT, PARTITION
from celery_sqs_heartbeat.pipeline.tables.levels import highest
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape
from celery_sqs_heartbeat.pipeline.tables.slots import slots_of
from celery_sqs_heartbeat.pipeline.tables.stays import stays_of

#: Most messages in flight on a standard queue (SQS Developer Guide, "Quotas").
QUOTA = 120_000

_MINUTE = 60_000_000


def in_flight_of(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the peak and the mean of each queue's minutes with messages in flight."""
    stays = stays_of(attempts)
    every_minute = _fill(_with_levels(_minutes_of(_changes_of(stays))))
    days = every_minute.withColumn(PARTITION, day_of(F.col("minute"))).withColumn(
        "quota_share", F.col("peak") / F.lit(QUOTA)
    )
    slots = F.broadcast(slots_of(stays, workers))
    return shape(days.join(slots, ["queue", PARTITION], "left"), IN_FLIGHT)


def _changes_of(stays: DataFrame) -> DataFrame:
    """Return when each queue had one message more, or one less.

    `change` is twice the microseconds since the `minute`, plus 1 if a message arrived. So a message
    that leaves at the same microsecond at which another one arrives has left before.
    """
    more_and_less = F.array(
        F.struct(F.col("begin").alias("at"), F.lit(1).alias("is_more")),
        F.struct(F.col("end").alias("at"), F.lit(0).alias("is_more")),
    )
    since = F.pmod("at", F.lit(_MINUTE))
    return stays.select("queue", F.inline(more_and_less)).select(
        "queue",
        (F.col("at") - since).alias("minute"),
        (since * 2 + F.col("is_more")).cast("int").alias("change"),
    )


def _minutes_of(changes: DataFrame) -> DataFrame:
    """Return the sums of the changes of each minute, relative to the level before it.

    `area` is how much they add to the minute, in messages times microseconds.
    """
    step = F.pmod("change", F.lit(2)) * 2 - 1
    until_next_minute = F.lit(_MINUTE) - F.floor(F.col("change") / F.lit(2))
    return (
        changes.groupBy("queue", "minute")
        .agg(
            F.sum(step).alias("net"),
            F.sum(step * until_next_minute).alias("area"),
            F.sort_array(F.collect_list("change")).alias("changes"),
        )
        .withColumn("rise", highest("changes", lambda change: F.pmod(change, F.lit(2)) * 2 - 1))
        .drop("changes")
    )


def _with_levels(minutes: DataFrame) -> DataFrame:
    """Add the levels in each minute and after it, and the next minute with changes."""
    in_order = Window.partitionBy("queue").orderBy("minute")
    before = F.col("after") - F.col("net")
    return (
        minutes.withColumn("after", F.sum("net").over(in_order))
        .withColumn("next", F.lead("minute").over(in_order))
        .withColumn("peak", before + F.col("rise"))
        .withColumn("mean", before + F.col("area") / F.lit(_MINUTE))
    )


def _fill(minutes: DataFrame) -> DataFrame:
    """Add the minutes in which nothing changed while messages were in flight."""
    last = F.when(F.col("after") > 0, F.col("next") - _MINUTE)
    all_until_next = F.sequence("minute", F.coalesce(last, "minute"), F.lit(_MINUTE))
    filled = minutes.withColumn("each", F.explode(all_until_next))
    is_own = F.col("each") == F.col("minute")
    return filled.select(
        "queue",
        F.col("each").alias("minute"),
        F.when(is_own, F.col("peak")).otherwise(F.col("after")).alias("peak"),
        F.when(is_own, F.col("mean")).otherwise(F.col("after")).alias("mean"),
    )
