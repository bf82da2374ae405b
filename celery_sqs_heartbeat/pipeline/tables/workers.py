"""Each start of a worker, and what its journal lacks."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.events import KEEPER_LATE, WORKER_STARTED, WORKER_STOPPED
from celery_sqs_heartbeat.pipeline.schema import PARTITION, WORKERS
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape

_TOLD_AT_START = ("host", "pid", "node", "pool", "concurrency", "settings", "versions")


def workers_of(events: DataFrame) -> DataFrame:
    """Return a row for each worker that wrote a line in these days.

    Of one that started before them, what its first line told is null. `missing` counts from
    the first line that was read, so that the days before them do not count as lost.
    """
    ev, ts, seq = F.col("ev"), F.col("ts"), F.col("seq")
    late = F.when(ev == KEEPER_LATE, F.col("late_us"))
    lives = events.groupBy("wid").agg(
        F.min("ts").alias("started"),
        F.max("ts").alias("last_seen"),
        F.max(F.when(ev == WORKER_STOPPED, ts)).alias("stopped"),
        F.count(seq).alias("lines"),
        (F.max("seq") - F.min("seq") + 1 - F.count(seq)).alias("missing"),
        F.count(late).alias("late_count"),
        F.max(late).alias("late_max_us"),
    )
    starts = events.where(ev == WORKER_STARTED).select("wid", *_TOLD_AT_START)
    workers = lives.join(starts, "wid", "left").withColumn(PARTITION, day_of(F.col("started")))
    return shape(workers, WORKERS)
