"""Messages in flight by queue and minute, by sums of differences.

No event is put in order but in the seconds that may hold a minute's peak, and no window is
larger than a queue's minutes: one hot queue does not put the work on one core.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import IN_FLIGHT, PARTITION
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape
from celery_sqs_heartbeat.pipeline.tables.stays import stays_of

#: Messages in flight on a standard queue, at the most (SQS Developer Guide, "Quotas").
QUOTA = 120_000

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_BOUNDS = "array<struct<second: bigint, level: bigint, at_most: bigint>>"


def in_flight_of(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the peak and the mean of each queue's minutes with messages in flight."""
    stays = stays_of(attempts)
    changes = _changes_of(stays)
    minutes = _minutes_of(_seconds_of(changes))
    every_minute = _fill(_with_peak(minutes, changes))
    days = every_minute.withColumn(PARTITION, day_of(F.col("minute"))).withColumn(
        "quota_share", F.col("peak") / F.lit(QUOTA)
    )
    slots = F.broadcast(_slots_of(stays, workers))
    return shape(days.join(slots, ["queue", PARTITION], "left"), IN_FLIGHT)


def _changes_of(stays: DataFrame) -> DataFrame:
    """Return when each queue had one message more, or one less."""
    more_and_less = F.array(
        F.struct(F.col("begin").alias("at"), F.lit(1).alias("step")),
        F.struct(F.col("end").alias("at"), F.lit(-1).alias("step")),
    )
    return stays.select("queue", F.inline(more_and_less)).withColumn(
        "second", _floor("at", _SECOND)
    )


def _seconds_of(changes: DataFrame) -> DataFrame:
    """Return what the changes of each second come to.

    `area` is what they add, in messages times microseconds, to the rest of their minute.
    """
    until_next_minute = _floor("second", _MINUTE) + _MINUTE - F.col("at")
    return (
        changes.groupBy("queue", "second")
        .agg(
            F.sum("step").alias("net"),
            F.count_if(F.col("step") > 0).alias("more"),
            F.sum(F.col("step") * until_next_minute).alias("area"),
        )
        .withColumn("minute", _floor("second", _MINUTE))
    )


def _minutes_of(seconds: DataFrame) -> DataFrame:
    """Return the minutes with changes: how many were in flight before and after, and the next.

    `sums` has what the minute reached for certain, and bounds of what each second may have.
    """
    by_minute = seconds.groupBy("queue", "minute").agg(
        F.sum("net").alias("net"),
        F.sum("area").alias("area"),
        F.sort_array(F.collect_list(F.struct("second", "net", "more"))).alias("seconds"),
    )
    in_order = Window.partitionBy("queue").orderBy("minute")
    return (
        by_minute.withColumn("after", F.sum("net").over(in_order))
        .withColumn("next", F.lead("minute").over(in_order))
        .withColumn("before", F.col("after") - F.col("net"))
        .withColumn("mean", F.col("before") + F.col("area") / F.lit(_MINUTE))
        .withColumn("sums", F.aggregate("seconds", _at_first(), _after_second))
        .select("queue", "minute", "before", "after", "next", "mean", "sums")
    )


def _at_first() -> Column:
    return F.struct(
        F.col("before").alias("level"),
        F.col("before").alias("reached"),
        F.array().cast(_BOUNDS).alias("bounds"),
    )


def _after_second(sums: Column, second: Column) -> Column:
    level = sums["level"] + second["net"]
    bound = F.struct(
        second["second"].alias("second"),
        sums["level"].alias("level"),
        (sums["level"] + second["more"]).alias("at_most"),
    )
    return F.struct(
        level.alias("level"),
        F.greatest(sums["reached"], level).alias("reached"),
        F.concat(sums["bounds"], F.array(bound)).alias("bounds"),
    )


def _with_peak(minutes: DataFrame, changes: DataFrame) -> DataFrame:
    """Add the most at once in each minute.

    Between two seconds the level is known. Within one it is at most the level before and all
    that came: only where that beats what the minute reached for certain does the order count.
    """
    reached = F.col("sums.reached")
    unclear = (
        # All columns are needed here as well, so that Spark makes the minutes but once.
        minutes.where(F.col("mean").isNotNull())
        .select("queue", "minute", reached.alias("reached"), F.inline("sums.bounds"))
        .where(F.col("at_most") > F.col("reached"))
        .select("queue", "second", "level")
    )
    # Who leaves at the very microsecond that another arrives has left before.
    in_order = Window.partitionBy("queue", "second").orderBy("at", "step")
    exact = (
        changes.join(F.broadcast(unclear), ["queue", "second"])
        .withColumn("peak", F.col("level") + F.sum("step").over(in_order))
        .groupBy("queue", _floor("second", _MINUTE).alias("minute"))
        .agg(F.max("peak").alias("exact"))
    )
    return minutes.join(exact, ["queue", "minute"], "left").withColumn(
        "peak", F.greatest(reached, "exact")
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


def _slots_of(stays: DataFrame, workers: DataFrame) -> DataFrame:
    """Return how many tasks the workers that hold a queue's messages on a day can run at once."""
    spans = stays.groupBy(
        "queue", "wid", day_of(F.col("begin")).alias("first"), day_of(F.col("end")).alias("last")
    ).agg(F.lit(None))
    days = spans.select(
        "queue", "wid", F.explode(F.sequence("first", "last")).alias(PARTITION)
    ).distinct()
    sizes = workers.groupBy("wid").agg(F.max("concurrency").alias("concurrency"))
    return (
        days.join(F.broadcast(sizes), "wid")
        .groupBy("queue", PARTITION)
        .agg(F.sum("concurrency").alias("slots"))
    )


def _floor(name: str, unit: int) -> Column:
    return F.col(name) - F.pmod(F.col(name), F.lit(unit))
