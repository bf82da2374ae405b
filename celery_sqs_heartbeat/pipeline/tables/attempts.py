"""Attempts: what became of each receive of a message.

Two steps: the events of a delivery are folded into one row by numbers alone (to carry strings
through the shuffle would double its time), then the receives of one message are set in order.

An attempt ends as the first of these that holds:

1. its last confirmed end: `deleted`, `released`, or `lapsed` (also when its delete can't ever
   succeed). It wins over a loss before it, as the task had come to its end; `lost` and `capped`
   keep when that was.
2. `continued`: the same worker received the message again, and its book held it still. What
   happens after that goes by the new delivery. The start of the task is carried over to it.
3. `lost`, then `capped`.
4. `abandoned`: the message was received again, or its worker has stopped or is not heard of.
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

#: A worker not heard of for so long, when others are, is taken for dead, in microseconds: three
#: times the age at which a segment is closed and shipped.
SILENT_US = 15 * 60 * _SECOND

_SAME_LEASE = ("redelivered", "finished")


def attempts_of(
    events: DataFrame,
    workers: DataFrame,
    fold: Callable[[DataFrame], DataFrame] = deliveries_of,
) -> DataFrame:
    """Return a row for each receive. Of one whose receive was not read, `received` is a guess.

    Args:
        fold: Folds the events by `deliveries_of`.
    """
    in_order = _in_order(with_groups(fold(events), events))
    with_worker = in_order.join(F.broadcast(_heard_of(workers)), "wid", "left")
    return shape(_ended(with_worker), ATTEMPTS)


def _in_order(deliveries: DataFrame) -> DataFrame:
    """Add what the receives of the same message tell.

    Those columns are `received_again`, `continued` and `started_before`. The one receive of a
    message that was dealt with has nothing to learn: it is kept out of the windows.
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
    """Return when each worker was heard of, and when any was: the end of the data."""
    lives = workers.groupBy("wid").agg(
        F.max("stopped").alias("stopped"), F.max("last_seen").alias("last_seen")
    )
    return lives.crossJoin(data_end(workers))


def _ended(attempts: DataFrame) -> DataFrame:
    """Decide how each attempt ended, and measure it."""
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
