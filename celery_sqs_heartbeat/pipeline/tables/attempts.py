"""Attempts: what happened to each receive of a message.

There are two steps. First, the events of a delivery are folded into one row with numbers only,
because strings in the shuffle would double its time. Then the receives of one message are ordered.

An attempt ends as the first of these that applies:

1. Its last confirmed end: `deleted`, `released`, or `lapsed` (also if its delete can never
   succeed). It overrides an earlier loss, because the task had ended. The columns `lost` and
   `capped` keep the time of the loss.
2. `continued`: the same worker received the message again while its book still held it. Later
   events belong to the new delivery, which takes over the start of the task.
3. `lost`, then `capped`.
4. `abandoned`: the message was received again, or its worker has stopped or is silent.
5. `running`.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, PARTITION
from celery_sqs_heartbeat.pipeline.tables.deliveries import deliveries_of
from celery_sqs_heartbeat.pipeline.tables.groups import with_groups
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape, us_of
from celery_sqs_heartbeat.pipeline.tables.workers import data_end

_SECOND = 1_000_000

#: A worker that is silent for this long while others write is considered dead, in microseconds. It
#: is three times the age at which a segment is closed and uploaded.
SILENT_US = 15 * 60 * _SECOND

_SAME_LEASE = ("redelivered", "finished")


def attempts_of(
    events: DataFrame,
    workers: DataFrame,
    fold: Callable[[DataFrame], DataFrame] = deliveries_of,
) -> DataFrame:
    """Return a row for each receive. If its line was not read, `received` is a guess.

    Args:
        fold: Folds the events with `deliveries_of`.
    """
    in_order = _in_order(with_groups(fold(events), events))
    with_worker = in_order.join(F.broadcast(_heard_of(workers)), "wid", "left")
    return shape(_ended(with_worker), ATTEMPTS)


def _in_order(deliveries: DataFrame) -> DataFrame:
    """Add the columns that depend on other receives of the same message.

    They are `received_again`, `continued` and `started_before`. A message that was received once
    and has an end needs none of them, so it is kept out of the windows.
    """
    is_alone = F.col("end").isNotNull() & F.coalesce(F.col("rc") == 1, F.lit(False))
    receives = Window.partitionBy("queue", "msg").orderBy("rc", "received", "dlv")
    of_worker = Window.partitionBy("queue", "msg", "wid").orderBy("rc", "received", "dlv")
    of_lease = Window.partitionBy("queue", "msg", "wid", "lease").orderBy("rc", "received", "dlv")
    before = of_lease.rowsBetween(Window.unboundedPreceding, -1)
    goes_on = F.col("received_as").isin(*_SAME_LEASE)
    had_no_end = F.lag(F.col("end").isNull(), 1, False).over(of_worker)
    is_new_lease = F.when(F.coalesce(goes_on, F.lit(False)) & had_no_end, 0).otherwise(1)
    of_many = (
        deliveries.where(~is_alone)
        .withColumn("received_again", F.lead("received").over(receives))
        .withColumn("lease", is_new_lease)
        .withColumn("lease", F.sum("lease").over(of_worker))
        .withColumn("continued", F.lead("received").over(of_lease))
        .withColumn("started_before", F.min("started").over(before))
        .drop("lease")
    )
    return deliveries.where(is_alone).unionByName(of_many, allowMissingColumns=True)


def _heard_of(workers: DataFrame) -> DataFrame:
    """Return when each worker wrote last, and when any did, which is the end of the data."""
    lives = workers.groupBy("wid").agg(
        F.max("stopped").alias("stopped"), F.max("last_seen").alias("last_seen")
    )
    return lives.crossJoin(data_end(workers))


def _ended(attempts: DataFrame) -> DataFrame:
    """Decide how each attempt ended, and calculate its durations."""
    lease_end = F.col("last_event") + us_of(F.coalesce("last_vt", F.lit(0)))
    is_silent = F.col("data_end") > F.greatest(F.col("last_seen") + SILENT_US, lease_end)
    is_abandoned = F.col("received_again").isNotNull() | F.col("stopped").isNotNull() | is_silent
    ended_as = (
        F.when(F.col("end").isNotNull(), F.col("end"))
        .when(F.col("continued").isNotNull(), "continued")
        .when(F.col("lost").isNotNull(), "lost")
        .when(F.col("capped").isNotNull(), "capped")
        .when(is_abandoned, "abandoned")
        .otherwise("running")
    )
    started = F.coalesce("started_before", "started")
    run = F.when(F.col("continued").isNull(), F.col("finished") - F.col("started"))
    return (
        attempts.withColumn("ended_as", ended_as)
        .withColumn("ended", F.coalesce("ended", "continued", "lost", "capped"))
        .withColumn("wait_us", F.col("started") - F.col("received"))
        .withColumn("started", started)
        .withColumn("run_us", run)
        .withColumn(PARTITION, day_of(F.col("received")))
    )
