"""Attempts: what happened to each receive of a message.

There are two steps. First, the events of a delivery are folded into one row. Then the receives of
one message are ordered.

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

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import SENT_AGAIN
from celery_sqs_heartbeat.leases.events import EventKind as Kind
from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, PARTITION
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape, us_of
from celery_sqs_heartbeat.pipeline.tables.workers import data_end

_SECOND = 1_000_000

#: A worker that is silent for this long while others write is considered dead, in microseconds. It
#: is three times the age at which a segment is closed and uploaded.
SILENT_US = 15 * 60 * _SECOND

_SAME_LEASE = ("redelivered", "finished")
#: A later delivery of a message that still runs has its own id, and so have its events.
_KEY = ("queue", "msg", "dlv", "wid", "task", "task_id")


def attempts_of(events: DataFrame, workers: DataFrame) -> DataFrame:
    """Return a row for each receive."""
    in_order = _in_order(_deliveries_of(events))
    with_worker = in_order.join(F.broadcast(_heard_of(workers)), "wid", "left")
    return shape(_ended(with_worker), ATTEMPTS)


def _deliveries_of(events: DataFrame) -> DataFrame:
    """Return a row for each receive, with everything that its own events show."""
    ts = F.col("ts")
    received, extended = _is(Kind.MESSAGE_RECEIVED), _is(Kind.LEASE_EXTENDED)
    deleted, released = _is(Kind.MESSAGE_DELETED), _is(Kind.MESSAGE_RELEASED)
    lapsed = _is(Kind.MESSAGE_LAPSING, Kind.DELETE_ABANDONED)
    end = F.when(deleted, "deleted").when(released, "released").when(lapsed, "lapsed")
    has_cause = released | lapsed | (deleted & (F.col("cause") == SENT_AGAIN))
    asked_vt = F.when(released, F.coalesce("vt", F.lit(0))).otherwise(F.col("vt"))
    return (
        events.where(F.col("msg").isNotNull() & F.col("dlv").isNotNull())
        .groupBy(*_KEY)
        .agg(
            *(F.max(name).alias(name) for name in ("rc", "max_rc", "sent", "first", "grp", "sn")),
            F.max(F.when(received, F.col("cause"))).alias("received_as"),
            # If its line was not read, the receive is a guess.
            F.coalesce(
                F.min(F.when(received, ts)), F.min(ts - F.coalesce("held_us", F.lit(0)))
            ).alias("received"),
            F.min(F.when(_is(Kind.TASK_STARTED), ts)).alias("started"),
            F.max(ts - F.col("ended_us")).alias("finished"),
            F.max(F.when(end.isNotNull(), ts)).alias("ended"),
            F.max(ts).alias("last_event"),
            _last(end).alias("end"),
            _last(F.when(has_cause, F.col("cause"))).alias("cause"),
            F.max(F.when(received, F.col("vt"))).alias("vt"),
            _last(asked_vt).alias("last_vt"),
            F.max(F.when(extended, ts)).alias("last_extended"),
            F.count(F.when(extended, 1)).alias("extensions"),
            F.count(F.when(_is(Kind.EXTENSION_FAILED), 1)).alias("failures"),
            F.min(F.when(_is(Kind.LEASE_EXPIRED), ts)).alias("expired"),
            F.min(F.when(_is(Kind.LEASE_LOST), ts)).alias("lost"),
            F.min(F.when(_is(Kind.LEASE_CAPPED), ts)).alias("capped"),
            F.min(F.when(extended, F.col("slack_us"))).alias("min_slack_us"),
            F.max("lat_us").alias("max_latency_us"),
            _last(F.col("err")).alias("last_error"),
        )
    )


def _is(*kinds: Kind) -> Column:
    return F.col("ev").isin(*(kind.value for kind in kinds))


def _last(value: Column) -> Column:
    """Return the aggregate with the value of the last line that has one."""
    return F.max_by(value, F.when(value.isNotNull(), F.col("seq")))


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
