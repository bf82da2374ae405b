"""Finds the pairs of executions that missing lines (`holes`) may belong to."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of
from celery_sqs_heartbeat.pipeline.tables.holes import Hole
from celery_sqs_heartbeat.pipeline.tables.rules import TOLERANCE_US
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of
from celery_sqs_heartbeat.pipeline.tables.surroundings import LEASE

_HOLES = "wid string, queues array<string>, since bigint, until bigint, is_killed boolean"
#: Pairs and holes are joined by hour. Each with each would be billions in a large fleet.
_HOUR_US = 3_600_000_000
#: The columns that identify a pair whose first receive is in no journal.
_PAIR = ("queue", "msg", "rc", "wid")


def with_losses(known: DataFrame, pairs: DataFrame, holes: Sequence[Hole]) -> DataFrame:
    """Add the missing lines that would show each pair's first execution.

    If its receive is in no journal, `lost_by` is a worker of the queue that may have received it,
    and `was_killed` tells whether that worker's lines are missing because it was killed. Otherwise
    `lost_until` is the latest time, up to the next receive, from which lines of the first worker
    are missing, if that worker was not killed.

    Args:
        known: The pairs with everything else that is known of them.
        pairs: Read several times, so this must be cheap.
    """
    own = [hole for hole in holes if not hole.is_killed]
    # Usually there is none, and then the plan is smaller.
    if holes:
        known = known.join(_of_gaps(pairs, holes), [*_PAIR], "left")
    else:
        nothing = {"lost_by": F.lit(None).cast("string"), "was_killed": F.lit(False)}
        known = known.withColumns(nothing)
    if own:
        return known.join(_of_own(pairs, own), [*LEASE], "left")
    return known.withColumn("lost_until", F.lit(None).cast("bigint"))


def _of_gaps(pairs: DataFrame, holes: Sequence[Hole]) -> DataFrame:
    """Return the workers that may have made the receive that is in no journal.

    It was after the receive before it had ended. Or it was earlier, by the same worker, if that
    worker's lines about giving the message back are lost, too. A killed worker did not give the
    message back, so the message was hidden for its timeout.
    """
    prior_end, lease_end = F.col("prior.ended"), F.col("prior.lease_end")
    is_back = F.col("prior.ended_as").isin("released", "deleted") & (prior_end <= F.col("received"))
    free_at = F.coalesce(F.when(is_back, prior_end), lease_end, "sqs_first", F.lit(0))
    # SQS reports the time of the first receive.
    is_first = F.col("prior").isNull() & (F.col("rc") == F.lit(2))
    hidden = F.when(F.col("is_killed"), us_of(F.coalesce("vt", F.lit(0)))).otherwise(0)
    last = F.least(F.when(is_first, F.col("sqs_first")), F.col("received") - hidden)
    is_again = (F.col("prior.wid") == F.col("lost_by")) & ~is_back
    begin = F.when(is_again, F.col("prior.last_event")).otherwise(free_at)
    is_possible = F.coalesce(~is_again | ~F.col("is_killed") | (last < lease_end), F.lit(True))
    # Lines that are certainly missing come first.
    is_killed = F.col("is_killed").cast("int").cast("string")
    gaps = pairs.where("has_gap").select(*_PAIR, "prior", "sqs_first", "received", "vt")
    # No hole of any kind can begin earlier or end later.
    earliest = F.least(free_at, F.col("prior.last_event"))
    bounds = min(hole.since for hole in holes), max(hole.until for hole in holes)
    gaps = gaps.withColumn("hour", _hours(earliest, F.col("received"), *bounds))
    by_hour = (
        _with_queues(_frame_of(pairs, holes), gaps, holes)
        .withColumn("queue", F.explode("queues"))
        .withColumn("hour", _hours(F.col("since"), F.col("until"), *bounds))
        .drop("queues")
    )
    return (
        gaps.join(F.broadcast(by_hour), ["queue", "hour"])
        .where(is_possible & _meet(begin, last))
        .groupBy(*_PAIR)
        .agg(F.min(F.concat(is_killed, "lost_by")).alias("chosen"))
        .select(
            *_PAIR,
            F.substring("chosen", 2, 1_000).alias("lost_by"),
            (F.substring("chosen", 1, 1) == "1").alias("was_killed"),
        )
    )


def _of_own(pairs: DataFrame, holes: Sequence[Hole]) -> DataFrame:
    begin = F.col("first.received")
    return (
        pairs.where("NOT has_gap")
        .select(F.col("first.dlv").alias("first_dlv"), "next_received", "first")
        .join(
            F.broadcast(_frame_of(pairs, holes)),
            (F.col("first.wid") == F.col("lost_by")) & _meet(begin, F.col("next_received")),
        )
        .groupBy(*LEASE)
        .agg(F.max(F.least("until", "next_received")).alias("lost_until"))
    )


def _with_queues(frame: DataFrame, gaps: DataFrame, holes: Sequence[Hole]) -> DataFrame:
    """Return the holes, in which a worker of unknown queues may have served any queue."""
    if all(hole.queues for hole in holes):
        return frame
    every = [row["queue"] for row in gaps.select("queue").distinct().collect()]
    queues = F.array(*map(F.lit, every)).cast("array<string>")
    return frame.withColumn(
        "queues", F.when(F.size("queues") > 0, F.col("queues")).otherwise(queues)
    )


def _hours(begin: Column, end: Column, least: int, most: int) -> Column:
    """Return a row for each hour from begin to end, and for those that the tolerance reaches."""
    first = F.greatest(begin - TOLERANCE_US, F.lit(least))
    last = F.least(end + TOLERANCE_US, F.lit(most))
    hours = (F.floor(each / F.lit(_HOUR_US)) for each in (first, last))
    return F.explode(F.sequence(*hours))


def _frame_of(pairs: DataFrame, holes: Sequence[Hole]) -> DataFrame:
    rows = [hole._asdict() for hole in holes]
    return frame_of(pairs.sparkSession, rows, _HOLES).withColumnRenamed("wid", "lost_by")


def _meet(begin: Column, end: Column) -> Column:
    """Return whether a hole overlaps that time."""
    return (F.col("since") <= end + TOLERANCE_US) & (F.col("until") >= begin - TOLERANCE_US)
