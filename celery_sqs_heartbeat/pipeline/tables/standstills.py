"""What happened in groups while a message stopped them: who was sent away, and who came next.

A group may hold most of a queue's messages. So its stops and its receives are put in one order
by time, instead of each being joined with each.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.group_order import GROUP_STOPPED

_GROUP = ("queue", "grp")
_MESSAGE = ["queue", "msg"]


def with_next(stops: DataFrame, attempts: DataFrame) -> DataFrame:
    """Add `next_received`: when another message of the group came after the stop's last attempt.

    It shows that the message that stopped the group is gone. Null where none came, and where
    that message still runs or was deleted.

    Args:
        attempts: Of the stopped groups, at least.
    """
    ends = stops.where(F.col("last_failed").isNotNull())
    asking = ends.select(*_GROUP, "msg", F.col("last_failed").alias("at"))
    received = F.col("received")
    # One that came along in the same poll was sent away again, and shows nothing.
    others = attempts.where(~F.col("cause").eqNullSafe(GROUP_STOPPED))
    offered = others.select(*_GROUP, received.alias("at"), received.alias("next_received"))
    # Backwards: what is nearest before it in this order is the first after it.
    found = _nearest(asking, offered, "next_received", F.desc("at"), F.desc("asks"))
    return stops.join(found.select(*_MESSAGE, "next_received"), _MESSAGE, "left")


def with_waiting(stops: DataFrame, attempts: DataFrame) -> DataFrame:
    """Add `waiting`: how many messages were given back between `since` and `resumed_at`.

    Args:
        attempts: Of the stopped groups, at least.
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
    """Add to each row that asks the value of the last one offered before it in its group."""
    both = asking.withColumn("asks", F.lit(1)).unionByName(
        offered.withColumn("asks", F.lit(0)), allowMissingColumns=True
    )
    before = Window.partitionBy(*_GROUP).orderBy(*order)
    nearest = F.last(value, ignorenulls=True).over(
        before.rowsBetween(Window.unboundedPreceding, -1)
    )
    return both.withColumn(value, nearest).where(F.col("asks") == 1)
