"""What each worker wrote on each day: few rows, that say for any days who lived in them.

A day's rows are of that day's lines alone. So a run makes them of the days that it reads, and
those of a longer time add up: the least `first_seen`, the greatest `last_seen`, the sum of
`lines`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.journal_events import KEEPER_LATE, WORKER_STARTED, WORKER_STOPPED
from celery_sqs_heartbeat.pipeline.schema import PARTITION, WORKERS
from celery_sqs_heartbeat.pipeline.tables.shaping import shape

#: What a worker's first line tells, and no other does.
TOLD_AT_START = ("host", "pid", "node", "pool", "concurrency", "settings", "versions")


def workers_of(events: DataFrame) -> DataFrame:
    """Return a row for each worker and day that it wrote a line on."""
    ev, ts, seq = F.col("ev"), F.col("ts"), F.col("seq")
    late = F.when(ev == KEEPER_LATE, F.col("late_us"))
    days = events.groupBy("wid", PARTITION).agg(
        F.min(ts).alias("first_seen"),
        F.max(ts).alias("last_seen"),
        F.max(F.when(ev == WORKER_STOPPED, ts)).alias("stopped"),
        F.count(seq).alias("lines"),
        F.min(seq).alias("first_seq"),
        F.max(seq).alias("last_seq"),
        F.count(late).alias("late_count"),
        F.max(late).alias("late_max_us"),
    )
    starts = events.where(ev == WORKER_STARTED).select("wid", PARTITION, *TOLD_AT_START)
    return shape(days.join(starts, ["wid", PARTITION], "left"), WORKERS)


def with_told(workers: DataFrame, earlier: DataFrame) -> DataFrame:
    """Fill in what the workers said at their starts, also where that was on an earlier day."""
    told = earlier.groupBy("wid").agg(*(F.any_value(n, True).alias(n) for n in TOLD_AT_START))
    return workers.drop(*TOLD_AT_START).join(told, "wid", "left").select(*WORKERS.names)


def data_end(workers: DataFrame) -> DataFrame:
    """Return one row: `data_end`, when any worker was heard of last."""
    return workers.agg(F.max("last_seen").alias("data_end"))


def missing() -> Column:
    """Return the aggregate of one worker's rows that tells how many lines its gaps say are lost."""
    return F.max("last_seq") - F.min("first_seq") + 1 - F.sum("lines")
