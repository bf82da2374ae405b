"""How many tasks the workers of a queue can run at once, by day.

A restarted worker counts as two workers, which never run at the same time. So the slots of a day
are the most at any one time, not the sum over all of its workers.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.tables.levels import highest
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of

_DAY_US = 86_400_000_000


def slots_of(stays: DataFrame, workers: DataFrame) -> DataFrame:
    """Return `slots` by queue and day, of the workers that have messages of the queue that day."""
    spans = stays.groupBy(
        "queue", "wid", day_of(F.col("begin")).alias("first"), day_of(F.col("end")).alias("last")
    ).agg(F.lit(None))
    days = spans.select(
        "queue", "wid", F.explode(F.sequence("first", "last")).alias(PARTITION)
    ).distinct()
    change = F.struct("at", "is_less", "step")
    return (
        days.join(F.broadcast(_changes_of(workers)), ["wid", PARTITION])
        .groupBy("queue", PARTITION)
        .agg(F.sort_array(F.collect_list(change)).alias("changes"))
        .select("queue", PARTITION, highest("changes", _step).alias("slots"))
    )


def _step(change: Column) -> Column:
    return change["step"]


def _changes_of(workers: DataFrame) -> DataFrame:
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
