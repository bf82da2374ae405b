"""How far each worker's clock is ahead of SQS's own.

SQS tells of each message when it was first received, by its clock, which all workers share. Of
a message that was never received before, that is this very receive: the worker's clock at the
answer, less that, is what the clock is ahead, and the few milliseconds of the answer's way.
This needs no message that two workers saw, and is closer than comparing two such clocks.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.core.events import EventKind
from celery_sqs_heartbeat.pipeline.tables.lines import DAY

#: Skew below this is left alone, in microseconds. An answer's way takes 5 to 50 ms, SQS's times
#: are whole milliseconds, and a machine that keeps its clock by NTP is within a few of them.
MIN_SKEW_US = 100_000

#: Of `percentile_approx`: the median's rank is within a thousandth.
_ACCURACY = 1000


def skews_of(lines: DataFrame) -> DataFrame:
    """Return each worker's `wid`, the `skews` of its days by day, and the `usual` one.

    Each is the median: the answers to a process that had been stopped are outliers. What is
    too little to correct is 0. The usual one is for days on which it received nothing new.
    """
    first_receives = lines.where(
        (F.col("ev") == EventKind.MESSAGE_RECEIVED.value) & (F.col("rc") == 1)
    )
    median = F.percentile_approx(F.col("ts") - F.col("first"), 0.5, _ACCURACY)
    by_day = (
        first_receives.where(F.col("first").isNotNull())
        .groupBy("wid", DAY)
        .agg(median.alias("lead_us"))
        .withColumn(
            "skew_us", F.when(F.abs("lead_us") >= MIN_SKEW_US, F.col("lead_us")).otherwise(0)
        )
    )
    return by_day.groupBy("wid").agg(
        F.map_from_entries(F.collect_list(F.struct(DAY, "skew_us"))).alias("skews"),
        F.percentile_approx("skew_us", 0.5, _ACCURACY).alias("usual"),
    )
