"""Attempts: what happened to each receive of a message; and recoveries: when the next one was.

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

from celery_sqs_heartbeat.leases.events import DUE_LATER, KEPT, SENT_AGAIN
from celery_sqs_heartbeat.leases.events import EventKind as Kind
from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, PARTITION, RECOVERIES
from celery_sqs_heartbeat.pipeline.spark import day_of, having, shape, us_of
from celery_sqs_heartbeat.pipeline.tables.events import data_end

#: The cause of a release although the task has succeeded.
DELETE_REFUSED = "delete refused"
#: Causes of releases after the end of a task. With any other cause, a started task still ran.
ENDED_RELEASES = ("failed", KEPT, "backoff policy", DELETE_REFUSED, "asked by task", "retried")
#: Ends after which the message must be received again.
FRUITLESS = ("released", "lapsed", "lost", "capped", "abandoned")

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


def recoveries_of(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return a row for each attempt that ended before its message was done.

    A message that SQS has moved to the dead-letter queue, or will move there, has no recovery. If
    the next receive is in no journal, neither the recovery nor the promise is known, because the
    lines about the attempt's end may be lost, too.

    A message that was left to SQS until its task was due has nothing to recover from, unless SQS
    moved it to the dead-letter queue.

    The promise is the delay of a release, or else the time left of the lease, by the last
    confirmed timeout.
    """
    failed = F.when(F.col("ended_as") == "abandoned", F.col("last_event")).otherwise(
        F.coalesce("ended", "last_event")
    )
    receives = Window.partitionBy("queue", "msg").orderBy("rc", "received", "dlv")
    next_receives = (
        having(attempts, "msg", attempts.where(F.col("ended_as").isin(*FRUITLESS)))
        .withColumn("next_received", F.lead("received").over(receives))
        .withColumn("next_wid", F.lead("wid").over(receives))
        .withColumn("next_rc", F.coalesce(F.lead("rc").over(receives), "rc"))
        .where(F.col("ended_as").isin(*FRUITLESS))
        .withColumn("failed", failed)
    )
    confirmed = F.coalesce("last_extended", "received")
    timeout = F.when(F.col("last_extended").isNull(), F.col("vt")).otherwise(F.col("last_vt"))
    left = F.greatest(confirmed + us_of(timeout) - F.col("failed"), F.lit(0))
    delay = us_of(F.col("last_vt"))
    promised = F.when(F.col("ended_as") == "released", delay).otherwise(left)
    is_last = F.col("next_received").isNull()
    # Instead of the next receive, SQS moves the message to the dead-letter queue.
    is_dead = is_last & F.coalesce(F.col("rc") >= F.col("max_rc"), F.lit(False))
    is_parked = F.coalesce(F.col("cause") == DUE_LATER, F.lit(False))
    until = F.coalesce("next_received", F.when(~is_dead, F.col("data_end")))
    known = {
        name: F.when(F.coalesce(F.col("next_rc") <= F.col("rc") + 1, F.lit(True)), value)
        for name, value in (
            ("recovery_us", until - F.col("failed")),
            ("promised_us", promised),
            ("next_received", F.col("next_received")),
            ("next_wid", F.col("next_wid")),
        )
    }
    return shape(
        next_receives.crossJoin(F.broadcast(data_end(workers)))
        .withColumn("is_censored", is_last & ~is_dead)
        .withColumn("is_dead_letter", is_dead)
        .where(~is_parked | is_dead)
        .withColumns(known)
        .withColumn("excess_us", F.col("recovery_us") - F.col("promised_us"))
        .withColumn(PARTITION, day_of(F.col("failed"))),
        RECOVERIES,
    )
