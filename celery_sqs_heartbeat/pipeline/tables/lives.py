"""Collects facts of each worker's life, for `holes`. Workers are few."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of
from celery_sqs_heartbeat.pipeline.tables.opting import has_opted_out, opting_tasks
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of
from celery_sqs_heartbeat.pipeline.tables.workers import missing


def lives_of(workers: DataFrame) -> DataFrame:
    """Return a row for each worker: its first and last line, and the number of missing lines."""
    return workers.groupBy("wid").agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.max("stopped").alias("stopped"),
        F.coalesce(F.min("first_seq"), F.lit(1)).alias("first_seq"),
        F.min(PARTITION).alias("first_day"),
        F.max(PARTITION).alias("last_day"),
        F.max(opting_tasks()).alias("tasks"),
        missing().alias("missing"),
    )


def unread_days(rejects: DataFrame) -> dict[str, list[datetime.date]]:
    """Return the days of each worker's segments that could not be read completely."""
    wid = F.regexp_extract("file", "worker=([^/]+)/", 1).alias("wid")
    days = defaultdict(list)
    for row in rejects.select(wid, PARTITION).distinct().collect():
        days[row["wid"]].append(row[PARTITION])
    return days


def held_by(
    attempts: DataFrame, seen: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the queues of each worker, and when the first lease that it held at its end expired.

    A live worker writes a line about the end of each lease, except for tasks that have opted out.

    Args:
        seen: The workers: their `wid`, `last_seen` and `tasks`, as in `lives_of`.
    """
    ddl = "wid string, last_seen bigint, tasks string"
    workers = frame_of(attempts.sparkSession, seen, ddl)
    timeout, last_event = us_of(F.coalesce("last_vt", "vt", F.lit(0))), F.col("last_event")
    confirmed = F.coalesce("last_extended", "received") + timeout
    # If a lease had expired and was still held, the worker tries again by then.
    lease_end = F.when(confirmed < last_event, last_event + timeout).otherwise(confirmed)
    is_extended = ~has_opted_out(F.col("tasks"), F.col("task"))
    is_held = (F.col("ended_as") == "abandoned") & (lease_end >= F.col("last_seen")) & is_extended
    found = (
        attempts.join(F.broadcast(workers), "wid")
        .groupBy("wid", "queue")
        .agg(F.min(F.when(is_held, lease_end)).alias("lease_end"))
        .groupBy("wid")
        .agg(F.sort_array(F.collect_list("queue")).alias("queues"), F.min("lease_end").alias("end"))
        .collect()
    )
    ends = {row["wid"]: row["end"] for row in found if row["end"] is not None}
    return {row["wid"]: row["queues"] for row in found}, ends


def gaps_of(events: DataFrame, wids: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the gaps in the numbers of these workers: the times of the lines around them."""
    if not wids:
        return
    theirs = frame_of(events.sparkSession, [{"wid": wid} for wid in wids], "wid string")
    in_order = Window.partitionBy("wid").orderBy("seq")
    numbered = (
        events.select("wid", "seq", "ts")
        .join(F.broadcast(theirs), "wid", "semi")
        .withColumn("seq_before", F.lag("seq").over(in_order))
        .withColumn("ts_before", F.lag("ts").over(in_order))
    )
    for row in numbered.where(F.col("seq") > F.col("seq_before") + 1).collect():
        # A clock may have been set back meanwhile.
        yield row["wid"], min(row["ts_before"], row["ts"]), max(row["ts_before"], row["ts"])
