"""The report's queries: sums, and the worst rows."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import DUE_LATER, SENT_AGAIN
from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.tables.workers import missing

Rows = Sequence[Mapping[str, Any]]

#: Duplicates, recoveries and files that are shown one by one.
SHOWN = 50
#: Of a receive that only the message's receive count shows.
IN_NO_JOURNAL = "in no journal"
#: Quantiles that are shown.
PARTS = (0.5, 0.9, 0.99, 0.999)
#: Queues whose calls and recommendations are shown.
QUEUES = 30


_EPOCH, _DAY_US = datetime.date(1970, 1, 1), 86_400_000_000
_CALL_SUMS = ("calls", "entries", "failed", "cost_usd", "saved_usd")


def overview(attempts: DataFrame) -> DataFrame:
    """Return the number of attempts, messages, workers and so on, and when they were."""
    messages = attempts.select(F.xxhash64("msg")).distinct().agg(F.count("*").alias("messages"))
    sums = attempts.agg(
        F.count("*").alias("attempts"),
        F.countDistinct("wid").alias("workers"),
        F.countDistinct("queue").alias("queues"),
        F.countDistinct("task").alias("tasks"),
        F.count("started").alias("started"),
        F.min("received").alias("begin"),
        F.max("last_event").alias("end"),
        F.sum("extensions").alias("extensions"),
        F.sum("failures").alias("failures"),
    )
    return sums.crossJoin(messages)


def ends(attempts: DataFrame) -> DataFrame:
    """Return how attempts ended.

    Running attempts whose task has not started count as `waiting`. Released ones that SQS keeps
    until their tasks are due count as `parked`.
    """
    is_waiting = (F.col("ended_as") == "running") & F.col("started").isNull()
    is_parked = (F.col("ended_as") == "released") & (F.col("cause") == DUE_LATER)
    ended_as = F.when(is_waiting, "waiting").when(is_parked, "parked").otherwise(F.col("ended_as"))
    return attempts.groupBy(ended_as.alias("ended_as")).agg(F.count("*").alias("attempts"))


def receives(attempts: DataFrame, first: datetime.date | None) -> DataFrame:
    """Return the receives by queue, and by why no task started in them: null if one did.

    Receives whose task may still start are left out. A receive is `IN_NO_JOURNAL` if only the
    message's receive count shows it.

    Args:
        first: The first day that was read; None for all. Receives before it are left out, too.
    """
    is_kept = F.col("started").isNotNull()
    is_back = F.col("ended_as").isin("released", "lapsed") | (F.col("cause") == SENT_AGAIN)
    why = (
        F.when(F.col("wait_us").isNotNull(), None)
        .when(F.col("received_as") == "finished", "finished")
        .when(is_kept, "redelivered")
        .when(is_back, F.coalesce("cause", F.lit("other")))
        .otherwise(F.col("ended_as"))
    )
    seen = attempts.where((F.col("ended_as") != "running") | is_kept)
    by_message = attempts.groupBy("queue", F.xxhash64("msg")).agg(
        F.min("rc").alias("least"),
        (F.max("rc") - F.min("rc") + 1 - F.count_distinct("rc")).alias("between"),
        F.min("first").alias("first"),
    )
    begin = 0 if first is None else (first - _EPOCH).days * _DAY_US
    is_covered = F.coalesce(F.col("first") >= begin, F.lit(first is None))
    unseen = F.col("between") + F.when(is_covered, F.col("least") - 1).otherwise(0)
    return (
        seen.groupBy("queue", why.alias("why"))
        .agg(F.count("*").alias("receives"))
        .unionByName(
            by_message.groupBy("queue")
            .agg(F.sum(unseen).alias("receives"))
            .where("receives > 0")
            .withColumn("why", F.lit(IN_NO_JOURNAL))
        )
        .orderBy("queue", F.desc("receives"), "why")
    )


def days(workers: DataFrame) -> list[datetime.date]:
    """Return the days with lines of any worker, in order."""
    return sorted(row[PARTITION] for row in workers.select(PARTITION).distinct().collect())


def worker_sums(workers: DataFrame, first: datetime.date | None) -> DataFrame:
    """Return sums over the workers.

    Args:
        first: The first day that was read; None for all. Lines that a worker wrote before it are
            not missing.
    """
    lives = workers.groupBy("wid").agg(
        F.max("stopped").alias("stopped"),
        missing().alias("missing"),
        F.sum("late_count").alias("late_count"),
        (F.min("first_seq") - 1).alias("before"),
        F.min(PARTITION).alias("begun"),
    )
    is_begun = F.lit(True) if first is None else F.col("begun") > F.lit(first)
    return lives.agg(
        F.count("*").alias("starts"),
        F.count("stopped").alias("stopped"),
        F.sum("missing").alias("missing"),
        F.sum(F.when(is_begun, F.col("before"))).alias("before"),
        F.sum("late_count").alias("late_count"),
    )


def causes(duplicates: DataFrame) -> DataFrame:
    """Return the duplicates by root cause."""
    return (
        duplicates.groupBy("cause")
        .agg(
            F.count("*").alias("pairs"),
            F.sum("overlap_us").alias("overlap_us"),
            F.count_if("both_succeeded").alias("both_succeeded"),
        )
        .orderBy(F.desc("pairs"), "cause")
    )


def recovery_sums(recoveries: DataFrame) -> DataFrame:
    """Return recovery times by queue and end."""
    is_known = ~F.col("is_censored")
    return (
        recoveries.groupBy("queue", "ended_as")
        .agg(
            F.count("*").alias("attempts"),
            F.count_if("is_censored").alias("censored"),
            F.count_if("is_dead_letter").alias("dead_letters"),
            F.avg(F.when(is_known, F.col("recovery_us"))).alias("recovery_us"),
            F.max(F.when(is_known, F.col("recovery_us"))).alias("longest_us"),
            F.avg("promised_us").alias("promised_us"),
        )
        .orderBy(F.desc("attempts"), "queue", "ended_as")
        .limit(QUEUES)
    )


def calls(calls: DataFrame) -> DataFrame:
    """Return calls by queue and kind."""
    sums = [F.sum(name).alias(name) for name in _CALL_SUMS]
    return calls.groupBy("queue", "kind").agg(*sums).orderBy(F.desc("cost_usd"), "queue", "kind")


def latest(recommendations: DataFrame) -> DataFrame:
    """Return the newest recommendations."""
    newest = recommendations.agg(F.max(PARTITION).alias(PARTITION))
    return recommendations.join(F.broadcast(newest), PARTITION).orderBy(
        F.desc("messages"), "queue", F.asc_nulls_first("task"), "calls_per_1000", "rank"
    )


def rejects(rejects: DataFrame) -> DataFrame:
    """Return the files with the most rejects."""
    return (
        rejects.groupBy("reason", "file")
        .agg(F.sum("lines").alias("lines"))
        .orderBy(F.desc("lines"), "file", "reason")
        .limit(SHOWN)
    )
