"""Messages in flight by queue and minute, and how many tasks the queue's workers can run at once.

Within each minute the changes are sorted and added up, starting from a level of 0. Then the net
changes of the minutes are added up by queue. Nothing longer than a minute is sorted, so one hot
queue does not put the work on one core. A change is an integer, and the changes of a minute are an
array, because sorting that is faster than a window over rows.

A restarted worker counts as two workers, which never run at the same time. So the slots of a day
are the most at any one time, not the sum over all of its workers.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.pipeline.schema import IN_FLIGHT, PARTITION
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape, us_of

#: Most messages in flight on a standard queue (SQS Developer Guide, "Quotas").
QUOTA = 120_000

_MINUTE = 60_000_000
_DAY_US = 86_400_000_000
_LONGEST_US = SQS.longest_timeout * 1_000_000


def in_flight_of(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the peak and the mean of each queue's minutes with messages in flight."""
    stays = _stays_of(attempts)
    every_minute = _fill(_with_levels(_minutes_of(_changes_of(stays))))
    days = every_minute.withColumn(PARTITION, day_of(F.col("minute"))).withColumn(
        "quota_share", F.col("peak") / F.lit(QUOTA)
    )
    slots = F.broadcast(_slots_of(stays, workers))
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
        .withColumn("rise", _highest("changes", lambda change: F.pmod(change, F.lit(2)) * 2 - 1))
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


def _stays_of(attempts: DataFrame) -> DataFrame:
    """Return `queue`, `wid`, and `begin` and `end` in microseconds, of each attempt.

    A running attempt is in flight until the end of the data. An abandoned one is in flight until
    its last confirmed lease ends. Both are limited by the end of the data, and by SQS's longest
    time.
    """
    confirmed = F.coalesce("last_extended", "received")
    lease_end = F.greatest("last_event", confirmed + us_of(F.coalesce("last_vt", "vt", F.lit(0))))
    known_end = F.when(F.col("ended_as") == "running", latest_end()).otherwise(
        F.least(lease_end, latest_end())
    )
    end = F.greatest(F.coalesce("ended", known_end), "received")
    return with_end_of_data(attempts).select(
        "queue", "wid", F.col("received").alias("begin"), end.alias("end")
    )


def with_end_of_data(attempts: DataFrame) -> DataFrame:
    """Add `end_of_data`: the last event of all data, in microseconds."""
    end_of_data = attempts.agg(F.max("last_event").alias("end_of_data"))
    return attempts.crossJoin(F.broadcast(end_of_data))


def latest_end() -> Column:
    """Return when a message is certainly no longer in flight, in microseconds.

    It is within twelve hours of the receive, so later days change nothing.
    """
    return F.least("end_of_data", F.col("received") + _LONGEST_US)


def _slots_of(stays: DataFrame, workers: DataFrame) -> DataFrame:
    """Return `slots` by queue and day, of the workers that have messages of the queue that day."""
    spans = stays.groupBy(
        "queue", "wid", day_of(F.col("begin")).alias("first"), day_of(F.col("end")).alias("last")
    ).agg(F.lit(None))
    days = spans.select(
        "queue", "wid", F.explode(F.sequence("first", "last")).alias(PARTITION)
    ).distinct()
    change = F.struct("at", "is_less", "step")
    return (
        days.join(F.broadcast(_slot_changes_of(workers)), ["wid", PARTITION])
        .groupBy("queue", PARTITION)
        .agg(F.sort_array(F.collect_list(change)).alias("changes"))
        .select("queue", PARTITION, _highest("changes", _step).alias("slots"))
    )


def _step(change: Column) -> Column:
    return change["step"]


def _slot_changes_of(workers: DataFrame) -> DataFrame:
    """Return when each worker adds and removes slots on each day, and how many.

    A worker runs from its first line of the day to its last. If it also wrote on the day before, it
    runs from midnight; if it writes on the next day, it runs until midnight. A worker that ends at
    the same microsecond at which another one starts counts together with it.
    """
    in_order = Window.partitionBy("wid").orderBy(PARTITION)
    wrote_before = F.lag(PARTITION).over(in_order) == F.date_sub(PARTITION, 1)
    writes_after = F.lead(PARTITION).over(in_order) == F.date_add(PARTITION, 1)
    midnight = F.col("first_seen") - F.pmod("first_seen", F.lit(_DAY_US))
    lives = workers.select(
        "wid",
        PARTITION,
        F.when(wrote_before, midnight).otherwise(F.col("first_seen")).alias("begin"),
        F.when(writes_after, midnight + _DAY_US)
        .otherwise(F.coalesce("last_seen", "first_seen"))
        .alias("end"),
    )
    sizes = workers.groupBy("wid").agg(F.max("concurrency").alias("size"))
    known = lives.join(F.broadcast(sizes.where(F.col("size").isNotNull())), "wid")
    more_and_less = F.array(
        F.struct(
            F.col("begin").alias("at"), F.lit(0).alias("is_less"), F.col("size").alias("step")
        ),
        F.struct(
            F.col("end").alias("at"), F.lit(1).alias("is_less"), (-F.col("size")).alias("step")
        ),
    )
    return known.select("wid", PARTITION, F.inline(more_and_less))


def _highest(changes: str, step: Callable[[Column], Column]) -> Column:
    """Return the highest level that a column's changes reach, starting from 0.

    Args:
        changes: Name of a column of arrays, each in order.
        step: Returns how much a change adds to the level.
    """

    def after(level: Column, change: Column) -> Column:
        now = level["now"] + step(change)
        return _level(now, F.greatest(level["highest"], now))

    return F.aggregate(changes, _level(0, 0), after)["highest"]


def _level(now: Column | int, highest: Column | int) -> Column:
    both = {"now": now, "highest": highest}
    return F.struct(*(F.lit(value).cast("int").alias(name) for name, value in both.items()))
