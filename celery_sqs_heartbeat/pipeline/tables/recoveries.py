"""Recoveries: how long after an attempt without success a message was received again."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import DUE_LATER
from celery_sqs_heartbeat.pipeline.schema import PARTITION, RECOVERIES
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, having, shape, us_of
from celery_sqs_heartbeat.pipeline.tables.workers import data_end

#: Ends after which the message must be received again.
FRUITLESS = ("released", "lapsed", "lost", "capped", "abandoned")


def recoveries_of(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return a row for each attempt that ended before its message was done.

    A message that SQS has moved to the dead-letter queue, or will move there, has no recovery. If
    the next receive is in no journal, neither the recovery nor the promise is known, because the
    lines about the attempt's end may be lost, too.

    A message that was left to SQS until its task was due has nothing to recover from, unless SQS
    moved it to the dead-letter queue.

    The promise is the delay of a release, or else the time left of the lease, by the last
    confirmed timeout.
    """
    failed = F.when(F.col("ended_as") == "abandoned", F.col("last_event")).otherwise(
        F.coalesce("ended", "last_event")
    )
    receives = Window.partitionBy("queue", "msg").orderBy("rc", "received", "dlv")
    next_receives = (
        having(attempts, "msg", attempts.where(F.col("ended_as").isin(*FRUITLESS)))
        .withColumn("next_received", F.lead("received").over(receives))
        .withColumn("next_wid", F.lead("wid").over(receives))
        .withColumn("next_rc", F.coalesce(F.lead("rc").over(receives), "rc"))
        .where(F.col("ended_as").isin(*FRUITLESS))
        .withColumn("failed", failed)
    )
    confirmed = F.coalesce("last_extended", "received")
    timeout = F.when(F.col("last_extended").isNull(), F.col("vt")).otherwise(F.col("last_vt"))
    left = F.greatest(confirmed + us_of(timeout) - F.col("failed"), F.lit(0))
    delay = us_of(F.col("last_vt"))
    promised = F.when(F.col("ended_as") == "released", delay).otherwise(left)
    is_last = F.col("next_received").isNull()
    # Instead of the next receive, SQS moves the message to the dead-letter queue.
    is_dead = is_last & F.coalesce(F.col("rc") >= F.col("max_rc"), F.lit(False))
    is_parked = F.coalesce(F.col("cause") == DUE_LATER, F.lit(False))
    until = F.coalesce("next_received", F.when(~is_dead, F.col("data_end")))
    known = {
        name: F.when(F.coalesce(F.col("next_rc") <= F.col("rc") + 1, F.lit(True)), value)
        for name, value in (
            ("recovery_us", until - F.col("failed")),
            ("promised_us", promised),
            ("next_received", F.col("next_received")),
            ("next_wid", F.col("next_wid")),
        )
    }
    return shape(
        next_receives.crossJoin(F.broadcast(data_end(workers)))
        .withColumn("is_censored", is_last & ~is_dead)
        .withColumn("is_dead_letter", is_dead)
        .where(~is_parked | is_dead)
        .withColumns(known)
        .withColumn("excess_us", F.col("recovery_us") - F.col("promised_us"))
        .withColumn(PARTITION, day_of(F.col("failed"))),
        RECOVERIES,
    )
