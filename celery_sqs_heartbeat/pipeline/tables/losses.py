"""Finds the pairs of executions that missing lines (`holes`) may belong to."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of
from celery_sqs_heartbeat.pipeline.tables.holes import Hole
from celery_sqs_heartbeat.pipeline.tables.rules import TOLERANCE_US
from celery_sqs_heartbeat.pipeline.tables.surroundings import LEASE


def with_losses(known: DataFrame, pairs: DataFrame, holes: Sequence[Hole]) -> DataFrame:
    """Add `lost_until`: the latest time from which lines of the first worker are missing.

    It is between the first receive and the next one, and null if no line is missing then.

    Args:
        known: The pairs with everything else that is known of them.
        pairs: Read once more, so this must be cheap.
    """
    # Usually there is none, and then the plan is smaller.
    if not holes:
        return known.withColumn("lost_until", F.lit(None).cast("bigint"))
    rows = [hole._asdict() for hole in holes]
    missing = frame_of(pairs.sparkSession, rows, "wid string, since bigint, until bigint")
    begins_before = F.col("since") <= F.col("next_received") + TOLERANCE_US
    ends_after = F.col("until") >= F.col("first.received") - TOLERANCE_US
    lost = (
        pairs.select(F.col("first.dlv").alias("first_dlv"), "next_received", "first")
        .join(
            F.broadcast(missing), (F.col("first.wid") == F.col("wid")) & begins_before & ends_after
        )
        .groupBy(*LEASE)
        .agg(F.max(F.least("until", "next_received")).alias("lost_until"))
    )
    return known.join(lost, [*LEASE], "left")
