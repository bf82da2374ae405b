"""Finds, for stopped groups, which messages were released and which was received next.

A group may contain most of a queue's messages. So its stops and receives are sorted together by
time, instead of joining each with each.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.message import GROUP_STOPPED

_GROUP = ("queue", "grp")
_MESSAGE = ["queue", "msg"]


def with_next(stops: DataFrame, attempts: DataFrame) -> DataFrame:
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


def with_waiting(stops: DataFrame, attempts: DataFrame) -> DataFrame:
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
