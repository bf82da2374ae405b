"""A row for each worker and day: few rows, which show the workers of any days.

A day's rows depend only on that day's lines. So a run makes them from the days that it reads, and
rows of several days can be combined: the smallest `first_seen`, the largest `last_seen`, the sum
of `lines`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import KEEPER_LATE, WORKER_STARTED, WORKER_STOPPED
from celery_sqs_heartbeat.pipeline.schema import PARTITION, WORKERS
from celery_sqs_heartbeat.pipeline.tables.shaping import shape

#: The columns that come only from a worker's first line.
TOLD_AT_START = ("host", "pid", "node", "pool", "concurrency", "settings", "versions")


def workers_of(events: DataFrame) -> DataFrame:
    """Return a row for each worker and day with a line of it."""
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


def with_reported(workers: DataFrame, earlier: DataFrame) -> DataFrame:
    """Fill in the facts of the workers' starts, including starts on an earlier day."""
    told = earlier.groupBy("wid").agg(*(F.any_value(n, True).alias(n) for n in TOLD_AT_START))
    return workers.drop(*TOLD_AT_START).join(told, "wid", "left").select(*WORKERS.names)


def data_end(workers: DataFrame) -> DataFrame:
    """Return one row with `data_end`: the last line of any worker."""
    return workers.agg(F.max("last_seen").alias("data_end"))


def missing() -> Column:
    """Return the aggregate of one worker's rows with the number of lines in its gaps."""
    return F.max("last_seq") - F.min("first_seq") + 1 - F.sum("lines")
