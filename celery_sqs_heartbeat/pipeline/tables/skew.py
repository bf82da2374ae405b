"""How far each worker's clock is ahead of SQS's own.

For each message, SQS reports when it was first received, by its own clock, which all workers share.
If the message was never received before, that is the time of this receive. The worker's clock at
the answer, minus that time, is how far the clock is ahead, plus the few milliseconds that the
answer took. This needs no message that two workers saw, and is more accurate than comparing two
workers' clocks.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.pipeline.storage.line_marks import DAY
from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of
from celery_sqs_heartbeat.pipeline.tables.numbering import Worker

#: Smaller skew is not corrected, in microseconds. An answer takes 5 to 50 ms, SQS's times are whole
#: milliseconds, and a clock set by NTP is accurate to a few milliseconds.
MIN_SKEW_US = 100_000

#: Accuracy of `percentile_approx`: the median's rank is right to a thousandth.
_ACCURACY = 1000


def lead() -> Column:
    """Return the aggregate of a worker's day that shows its skew, in microseconds.

    It is the median, because answers to a process that had been stopped are outliers.
    """
    is_first = (F.col("ev") == EventKind.MESSAGE_RECEIVED.value) & (F.col("rc") == 1)
    median = F.percentile_approx(F.when(is_first, F.col("ts") - F.col("first")), 0.5, _ACCURACY)
    return median.cast("bigint")


def skews_of(workers: Iterable[Worker]) -> list[tuple[str, dict[datetime.date, int], int]]:
    """Return the workers with wrong clocks, their skew on each day, and their usual skew.

    A skew that is too small to correct is 0. On a day without a new message, a worker has its usual
    skew: the median of its other days.
    """
    rows = []
    for worker in workers:
        skews = {
            day: us if abs(us) >= MIN_SKEW_US else 0
            for day, us in worker.leads.items()
            if us is not None
        }
        if any(skews.values()):
            rows.append((worker.wid, skews, statistics.median_low(skews.values())))
    return rows


def with_skew(lines: DataFrame, workers: Iterable[Worker]) -> DataFrame:
    """Add `skew_us`: how far the worker's clock was ahead that day."""
    rows = skews_of(workers)
    if not rows:
        return lines.withColumn("skew_us", F.lit(0))
    ddl = "wid string, skews map<string, bigint>, usual bigint"
    values = [
        {"wid": wid, "skews": {str(day): us for day, us in skews.items()}, "usual": usual}
        for wid, skews, usual in rows
    ]
    skewed = F.broadcast(frame_of(lines.sparkSession, values, ddl))
    skew = F.coalesce(F.col("skews")[F.col(DAY).cast("string")], "usual", F.lit(0))
    return lines.join(skewed, "wid", "left").withColumn("skew_us", skew)
