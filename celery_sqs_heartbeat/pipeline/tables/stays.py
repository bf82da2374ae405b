"""From when to when each attempt's message was in flight."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of

_LONGEST_US = MAX_VISIBILITY_SECONDS * 1_000_000


def stays_of(attempts: DataFrame) -> DataFrame:
    """Return `queue`, `wid`, and `begin` and `end` in microseconds, of each attempt.

    One that still runs is in flight until the end of the data. One that was abandoned is until
    its last confirmed lease is over. Neither is beyond the end of the data, nor for longer than
    SQS lets it.
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
    """Add `end_of_data`, the last event of all that was read, in microseconds."""
    end_of_data = attempts.agg(F.max("last_event").alias("end_of_data"))
    return attempts.crossJoin(F.broadcast(end_of_data))


def latest_end() -> Column:
    """Return when a message is not in flight any more for certain, in microseconds.

    Within twelve hours of the receive, so that days which are read later change nothing.
    """
    return F.least("end_of_data", F.col("received") + _LONGEST_US)
