"""Finds the times from which lines of a worker are missing, as far as its own journal shows them.

| sign | from | to |
|---|---|---|
| a gap in the worker's numbers | the line before it | the line after it |
| no `worker-stopped`, and a segment of its last day can't be read | its last line | `SILENT_US` \
later |

A hole says something about the worker's own messages only: no other worker's journal changes it.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of
from celery_sqs_heartbeat.pipeline.tables.attempts import SILENT_US
from celery_sqs_heartbeat.pipeline.tables.workers import missing


class Hole(NamedTuple):
    """A time from which lines of a worker are missing, in microseconds."""

    wid: str
    since: int
    until: int


def holes_of(events: DataFrame, workers: DataFrame, rejects: DataFrame) -> list[Hole]:
    """Return the holes of all workers. Workers are few, so their facts are collected."""
    lives = workers.groupBy("wid").agg(
        F.max("last_seen").alias("last_seen"),
        F.max("stopped").alias("stopped"),
        F.max(PARTITION).alias("last_day"),
        missing().alias("missing"),
    )
    unread, holes, incomplete = _unread_days(rejects), [], []
    for life in lives.where("last_seen IS NOT NULL").collect():
        wid, last = life["wid"], life["last_seen"]
        if life["missing"]:
            incomplete.append(wid)
        if life["stopped"] is None and any(day >= life["last_day"] for day in unread[wid]):
            holes.append(Hole(wid, last, last + SILENT_US))
    return [*holes, *_gaps_of(events, incomplete)]


def _unread_days(rejects: DataFrame) -> defaultdict[str, list[datetime.date]]:
    """Return the days of each worker's segments that could not be read completely."""
    wid = F.regexp_extract("file", "worker=([^/]+)/", 1).alias("wid")
    days = defaultdict[str, list[datetime.date]](list)
    for row in rejects.select(wid, PARTITION).distinct().collect():
        days[row["wid"]].append(row[PARTITION])
    return days


def _gaps_of(events: DataFrame, wids: list[str]) -> Iterator[Hole]:
    """Yield the gaps in the numbers of these workers."""
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
        yield Hole(row["wid"], min(row["ts_before"], row["ts"]), max(row["ts_before"], row["ts"]))
