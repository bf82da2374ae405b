"""Group stops: which message made the rest of its group wait, and for how long.

SQS delivers no message of a FIFO queue while an earlier one of its group is hidden. So a message
that fails stops its group until it is deleted, or until SQS moves it to the dead-letter queue. An
attempt stops its group if the task failed or was interrupted, and the message becomes visible
again. An orderly shutdown is not a stop, and neither is a message that was released before its
task started.

A group may contain most of a queue's messages. So its stops and receives are sorted together by
time, instead of joining each with each.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import DUE_LATER, UNDELIVERABLE
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from celery_sqs_heartbeat.pipeline.schema import GROUP_STOPS, PARTITION
from celery_sqs_heartbeat.pipeline.spark import day_of, frame_of, having, shape, us_of
from celery_sqs_heartbeat.pipeline.tables.attempts import ENDED_RELEASES, FRUITLESS
from celery_sqs_heartbeat.pipeline.tables.events import data_end

#: Causes for which a worker releases a message that has not failed.
_ORDERLY = (
    GROUP_STOPPED,
    NO_ROOM,
    WAITED_LONG,
    DUE_LATER,
    "shutdown",
    "consumer closed",
    "not delivered",
)
_MICROSECONDS = 1_000_000
_GROUP = ("queue", "grp")
_MESSAGE = ["queue", "msg"]


def group_stops_of(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return a row for each message that stopped its group."""
    of_fifo = attempts.where(F.col("queue").endswith(".fifo")).withColumn("failed", _failed())
    stopping = having(of_fifo, "msg", of_fifo.where(_is_stop()))
    # Read several times below. They are few.
    stops = _by_message(stopping).persist()
    if stops.isEmpty():
        return frame_of(stops.sparkSession, [], GROUP_STOPS.ddl)
    in_groups = having(of_fifo, "grp", stops)
    resumed = F.coalesce("deleted", "next_received")
    with_end = _with_next(stops, in_groups).withColumn("resumed_at", resumed)
    known = _with_waiting(with_end, in_groups)
    outcome = (
        F.when(F.col("deleted").isNotNull(), "succeeded")
        .when(F.col("is_dead"), "dead letter")
        .otherwise("unknown")
    )
    # SQS moves a dead letter when it would deliver it again: the group may have no other message.
    until = F.coalesce("resumed_at", F.when(F.col("is_dead"), F.col("visible")), "data_end")
    span = F.greatest(until - F.col("stopped_at"), F.lit(0))
    return shape(
        known.crossJoin(F.broadcast(data_end(workers)))
        .withColumn("seconds", span / _MICROSECONDS)
        .withColumn("outcome", outcome)
        .withColumn(PARTITION, day_of(F.col("stopped_at"))),
        GROUP_STOPS,
    )


def _failed() -> Column:
    """Return when an attempt failed: its release was requested, or it had its last event."""
    is_released = F.col("ended_as").isin("released", "lapsed")
    ended = F.coalesce(F.when(is_released, F.col("finished")), "ended", "last_event")
    return F.when(F.col("ended_as") == "abandoned", F.col("last_event")).otherwise(ended)


def _is_stop() -> Column:
    cause = F.coalesce("cause", F.lit(""))
    has_failed = (
        F.col("started").isNotNull()
        | cause.isin(*ENDED_RELEASES, UNDELIVERABLE)
        | (F.col("ended_as") == "lapsed")
    )
    return F.col("ended_as").isin(*FRUITLESS) & has_failed & ~cause.isin(*_ORDERLY)


def _by_message(attempts: DataFrame) -> DataFrame:
    """Return a row for each message: its first stop, its last attempt, and its delete."""
    receives = Window.partitionBy("queue", "msg").orderBy("rc", "received", "dlv")
    is_last = F.col("next_one").isNull() & F.col("ended_as").isin(*FRUITLESS)
    is_dead = is_last & F.coalesce(F.col("rc") >= F.col("max_rc"), F.lit(False))
    delay = us_of(F.when(F.col("ended_as") == "released", F.col("last_vt")).otherwise(F.lit(0)))
    visible = F.coalesce("ended", "last_event") + F.coalesce(delay, F.lit(0))
    return (
        attempts.withColumn("next_one", F.lead("received").over(receives))
        .groupBy("queue", "msg")
        .agg(
            *(F.max(name).alias(name) for name in ("grp", "task", "task_id")),
            F.min(F.when(_is_stop(), F.col("received"))).alias("since"),
            F.min(F.when(_is_stop(), F.col("failed"))).alias("stopped_at"),
            F.max(F.when(F.col("ended_as") == "deleted", F.col("ended"))).alias("deleted"),
            F.max(F.when(is_last, F.col("failed"))).alias("last_failed"),
            F.max(F.when(is_dead, visible)).alias("visible"),
            F.max(F.when(is_dead, 1).otherwise(0)).alias("dead"),
            F.max("rc").alias("attempts"),
        )
        .withColumn("is_dead", F.col("dead") == 1)
        # Because of the hash of message ids, another message may be among them.
        .where(F.col("grp").isNotNull() & F.col("stopped_at").isNotNull())
    )


def _with_next(stops: DataFrame, attempts: DataFrame) -> DataFrame:
    """Add `next_received`: the next receive in the group after the stop's last attempt.

    It shows that the message that stopped the group is gone. It is null if there is none, or if
    that message still runs or was deleted.

    Args:
        attempts: At least those of the stopped groups.
    """
    ends = stops.where(F.col("last_failed").isNotNull())
    asking = ends.select(*_GROUP, "msg", F.col("last_failed").alias("at"))
    received = F.col("received")
    # A message of the same poll was released again, and shows nothing.
    others = attempts.where(~F.col("cause").eqNullSafe(GROUP_STOPPED))
    offered = others.select(*_GROUP, received.alias("at"), received.alias("next_received"))
    # In descending order, the nearest before it is the first after it in time.
    found = _nearest(asking, offered, "next_received", F.desc("at"), F.desc("asks"))
    return stops.join(found.select(*_MESSAGE, "next_received"), _MESSAGE, "left")


def _with_waiting(stops: DataFrame, attempts: DataFrame) -> DataFrame:
    """Add `waiting`: how many messages were released between `since` and `resumed_at`.

    Args:
        attempts: At least those of the stopped groups.
    """
    released = attempts.where(F.col("cause") == GROUP_STOPPED)
    asking = released.select(*_GROUP, F.col("msg").alias("other"), F.col("failed").alias("at"))
    offered = stops.select(*_GROUP, "msg", F.col("since").alias("at"))
    found = _nearest(asking, offered, "msg", F.asc("at"), F.asc("asks"))
    is_meanwhile = F.col("at") <= F.coalesce("resumed_at", "at")
    waiting = (
        found.join(stops.select(*_MESSAGE, "resumed_at"), _MESSAGE)
        .where(is_meanwhile & (F.col("other") != F.col("msg")))
        .groupBy(*_MESSAGE)
        .agg(F.countDistinct("other").alias("waiting"))
    )
    counted = F.coalesce("waiting", F.lit(0))
    return stops.join(waiting, _MESSAGE, "left").withColumn("waiting", counted)


def _nearest(asking: DataFrame, offered: DataFrame, value: str, *order: Column) -> DataFrame:
    """Add to each asking row the last value that was offered before it in its group."""
    both = asking.withColumn("asks", F.lit(1)).unionByName(
        offered.withColumn("asks", F.lit(0)), allowMissingColumns=True
    )
    before = Window.partitionBy(*_GROUP).orderBy(*order)
    nearest = F.last(value, ignorenulls=True).over(
        before.rowsBetween(Window.unboundedPreceding, -1)
    )
    return both.withColumn(value, nearest).where(F.col("asks") == 1)
