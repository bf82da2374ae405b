"""How far each worker's clock is ahead of SQS's own.

SQS tells of each message when it was first received, by its clock, which all workers share. Of
a message that was never received before, that is this very receive: the worker's clock at the
answer, less that, is what the clock is ahead, and the few milliseconds of the answer's way.
This needs no message that two workers saw, and is closer than comparing two such clocks.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.pipeline.storage.line_marks import DAY
from celery_sqs_heartbeat.pipeline.tables.numbering import Worker

#: Skew below this is left alone, in microseconds. An answer's way takes 5 to 50 ms, SQS's times
#: are whole milliseconds, and a machine that keeps its clock by NTP is within a few of them.
MIN_SKEW_US = 100_000

#: Of `percentile_approx`: the median's rank is within a thousandth.
_ACCURACY = 1000


def lead() -> Column:
    """Return the aggregate of a worker's day that its skew is found by, in microseconds.

    It is the median: the answers to a process that had been stopped are outliers.
    """
    is_first = (F.col("ev") == EventKind.MESSAGE_RECEIVED.value) & (F.col("rc") == 1)
    median = F.percentile_approx(F.when(is_first, F.col("ts") - F.col("first")), 0.5, _ACCURACY)
    return median.cast("bigint")


def skews_of(workers: Iterable[Worker]) -> list[tuple[str, dict[datetime.date, int], int]]:
    """Return the workers whose clocks were wrong, by how much on each day, and as a rule.

    What is too little to correct is 0. On a day on which a worker received nothing new, its
    usual skew holds: the median of its other days.
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
    """Add `skew_us`, by which the worker's clock was ahead that day."""
    rows = skews_of(workers)
    if not rows:
        return lines.withColumn("skew_us", F.lit(0))
    ddl = "wid string, skews map<date, bigint>, usual bigint"
    skewed = F.broadcast(lines.sparkSession.createDataFrame(rows, ddl))
    skew = F.coalesce(F.col("skews")[F.col(DAY)], "usual", F.lit(0))
    return lines.join(skewed, "wid", "left").withColumn("skew_us", skew)
