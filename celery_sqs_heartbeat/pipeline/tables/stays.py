"""Calculates when each attempt's message was in flight."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.service import SQS
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of

_LONGEST_US = SQS.longest_timeout * 1_000_000


def stays_of(attempts: DataFrame) -> DataFrame:
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
