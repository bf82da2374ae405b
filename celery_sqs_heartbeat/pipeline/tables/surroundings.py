"""Reads a worker's other lines from the time when each lease expired."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import KEEPER_LATE, PERMISSIONS
from celery_sqs_heartbeat.leases.events import EventKind as Kind
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.pipeline.tables.rules import TOLERANCE_US

#: The columns that identify a lease: the first delivery, until the message's next receive.
LEASE = ("first_dlv", "next_received")

#: A queue that refuses one of these actions refuses the other, too.
_EXTENDING = (Action.EXTEND.value, Action.RELEASE.value)


def surroundings(leases: DataFrame, events: DataFrame) -> DataFrame:
    """Return how long the keeper was delayed when each lease expired, and what was refused.

    `late_us` is the delay. `denied_at` is the time since which the queue refused all extensions of
    the worker, if it still did. The journal has that line for one message only, and the worker
    tries only that one again.
    """
    ev, ts = F.col("ev"), F.col("ts")
    is_late = ev == KEEPER_LATE
    is_permission = ev.isin(*PERMISSIONS) & F.col("act").isin(*_EXTENDING)
    lines = events.where(is_late | is_permission).select(
        "ev", "wid", "ts", "late_us", F.col("queue").alias("of_queue")
    )
    ran_out = is_late & (ts >= F.col("sure_until") - TOLERANCE_US)
    ran_out &= ts - F.col("late_us") < F.col("next_received")
    is_before = (F.col("of_queue") == F.col("queue")) & (ts < F.col("next_received"))
    denied_at = F.max(F.when(ev == Kind.PERMISSION_DENIED.value, ts))
    granted_at = F.max(F.when(ev == Kind.PERMISSION_GRANTED.value, ts))
    return (
        leases.join(
            F.broadcast(lines),
            (F.col("wid") == F.col("first_wid")) & (ran_out | (~is_late & is_before)),
        )
        .groupBy(*LEASE)
        .agg(
            F.max("late_us").alias("late_us"),
            F.when(denied_at > F.coalesce(granted_at, F.lit(0)), denied_at).alias("denied_at"),
        )
    )
