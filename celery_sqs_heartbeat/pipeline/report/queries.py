"""The report's queries: sums and the worst rows, never events."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.leases.events import DUE_LATER, SENT_AGAIN
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.tables.workers import missing
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

Rows = Sequence[Mapping[str, Any]]
#: The rows of each query, by its name below. Columns have the names of their tables.
Found = Mapping[str, Rows]

#: Duplicates, recoveries and files that are shown one by one.
SHOWN = 50
#: Of a receive that only the message's receive count shows.
IN_NO_JOURNAL = "in no journal"
#: Queues whose calls and recommendations are shown.
QUEUES = 30
#: Tasks whose durations are drawn: those that took the most time.
TASKS = 8
#: Points of a line. More can't be distinguished on a page.
POINTS = 288
#: Queues whose messages in flight are drawn: those with the highest peaks.
CURVES = 6
MINUTE_US = 60_000_000

_EPOCH, _DAY_US = datetime.date(1970, 1, 1), 86_400_000_000
_GROUP = ("queue", "grp")
_CALL_SUMS = ("calls", "entries", "failed", "cost_usd", "saved_usd")


def collect(
    warehouse: Warehouse, span: Span, progress: Callable[[str], None] = lambda _: None
) -> Found:
    """Query the warehouse's tables of those days for the report.

    Args:
        progress: Is called with the step, in a few words.
    """

    def table(which: Table) -> DataFrame:
        return warehouse.read(which, span.first, span.last)

    attempts, workers = table(schema.ATTEMPTS), table(schema.WORKERS)
    duplicates, stops = table(schema.DUPLICATES), table(schema.GROUP_STOPS)
    # A message behind another one has no promised time: it returns when its group continues.
    recoveries = table(schema.RECOVERIES).where(~F.col("cause").eqNullSafe(GROUP_STOPPED))
    queries: dict[str, Callable[[], DataFrame]] = {
        "overview": lambda: _overview(attempts),
        "ends": lambda: _ends(attempts),
        "receives": lambda: receives(attempts, span.first),
        "days": lambda: workers.select(PARTITION).distinct().orderBy(PARTITION),
        "workers": lambda: worker_sums(workers, span.first),
        "causes": lambda: _causes(duplicates),
        "duplicates": lambda: _top(
            duplicates, F.desc("overlap_us"), F.col("second_started"), F.col("second_rc")
        ),
        "recoveries": lambda: _recovery_sums(recoveries),
        "slowest": lambda: _top(
            recoveries, F.desc_nulls_last("excess_us"), F.col("failed"), F.col("rc")
        ),
        "grouped": lambda: _grouped(attempts),
        "stop_sums": lambda: _stop_sums(stops),
        "stopped_groups": lambda: _stopped_groups(stops),
        "group_stops": lambda: _top(stops, F.desc("seconds"), F.col("stopped_at"), F.col("grp")),
        "durations": lambda: _durations(table(schema.DURATIONS)),
        "in_flight": lambda: _in_flight(table(schema.IN_FLIGHT)),
        "calls": lambda: _calls(table(schema.CALLS)),
        "recommendations": lambda: _latest(table(schema.RECOMMENDATIONS)),
        "rejects": lambda: _rejects(table(schema.REJECTS)),
    }
    progress("querying the tables")
    # While one query is planned, another one uses the other core.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(
            lambda query: [row.asDict() for row in query().collect()], queries.values()
        )
        return dict(zip(queries, found, strict=True))


def _top(frame: DataFrame, *order: Column) -> DataFrame:
    """Return the first rows. The message decides the order of otherwise equal rows."""
    return frame.orderBy(*order, "queue", "msg").limit(SHOWN)


def _overview(attempts: DataFrame) -> DataFrame:
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


def _ends(attempts: DataFrame) -> DataFrame:
    """Return how attempts ended, and their share.

    Running attempts whose task has not started count as `waiting`. Released ones that SQS keeps
    until their tasks are due count as `parked`.
    """
    is_waiting = (F.col("ended_as") == "running") & F.col("started").isNull()
    is_parked = (F.col("ended_as") == "released") & (F.col("cause") == DUE_LATER)
    ended_as = F.when(is_waiting, "waiting").when(is_parked, "parked").otherwise(F.col("ended_as"))
    counts = attempts.groupBy(ended_as.alias("ended_as")).agg(F.count("*").alias("attempts"))
    return counts.orderBy(F.desc("attempts"), "ended_as")


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


def _causes(duplicates: DataFrame) -> DataFrame:
    """Return the duplicates by root cause."""
    sums = duplicates.groupBy("cause").agg(
        F.count("*").alias("pairs"),
        F.sum("overlap_us").alias("overlap_us"),
        F.count_if("both_succeeded").alias("both_succeeded"),
    )
    return sums.orderBy(F.desc("pairs"), "cause")


def _recovery_sums(recoveries: DataFrame) -> DataFrame:
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


def _grouped(attempts: DataFrame) -> DataFrame:
    """Return the number of receives from FIFO queues, and how many of them have a group."""
    return attempts.where(F.col("queue").endswith(".fifo")).agg(
        F.count("*").alias("receives"), F.count("grp").alias("with_group")
    )


def _stop_sums(stops: DataFrame) -> DataFrame:
    """Return the number of stops, and of stopped groups."""
    by_group = stops.groupBy(*_GROUP).agg(F.count("*").alias("stops"))
    return by_group.agg(F.count("*").alias("groups"), F.sum("stops").alias("stops"))


def _stopped_groups(stops: DataFrame) -> DataFrame:
    """Return the groups that were stopped the longest, each with its worst message."""
    worst = Window.partitionBy(*_GROUP).orderBy(F.desc("seconds"), "msg")
    return (
        stops.withColumn("place", F.row_number().over(worst))
        .groupBy(*_GROUP)
        .agg(
            F.count("*").alias("stops"),
            F.sum("seconds").alias("seconds"),
            F.max("seconds").alias("longest"),
            F.sum("waiting").alias("waiting"),
            F.count_if(F.col("outcome") == "dead letter").alias("dead_letters"),
            *(F.max(F.when(F.col("place") == 1, F.col(n))).alias(n) for n in ("msg", "task")),
        )
        .orderBy(F.desc("seconds"), *_GROUP)
        .limit(SHOWN)
    )


def _durations(durations: DataFrame) -> DataFrame:
    """Return the histograms of the tasks that took the most time, and that time as `total_us`."""
    of_task = (F.col("all.queue") == F.col("top.queue")) & F.col("all.task").eqNullSafe(
        F.col("top.task")
    )
    total = durations.where(F.col("measure") == "run").groupBy("queue", "task")
    top = total.agg(F.sum("sum_us").alias("total_us")).orderBy(F.desc("total_us"), "queue", "task")
    shown = durations.where(F.col("measure").isin("run", "wait"))
    return (
        shown.alias("all")
        .join(F.broadcast(top.limit(TASKS)).alias("top"), of_task)
        .groupBy("total_us", "all.queue", "all.task", "measure", "vt", "bin")
        .agg(F.sum("spans").alias("spans"), F.sum("censored").alias("censored"))
        .orderBy(F.desc("total_us"), "queue", "task", "bin")
    )


def _in_flight(in_flight: DataFrame) -> DataFrame:
    """Return peak and mean by queue and step: a few hundred steps in total.

    Minutes without a row count as 0 in a step's mean. `step_us` is the step's length.
    """
    ends = in_flight.agg(F.min("minute").alias("begin"), F.max("minute").alias("end")).withColumn(
        "per_step", F.ceil(((F.col("end") - F.col("begin")) / MINUTE_US + 1) / POINTS)
    )
    step_us = F.col("per_step") * MINUTE_US
    since = F.col("minute") - F.col("begin")
    top = in_flight.groupBy("queue").agg(F.max("peak").alias("top"))
    return (
        in_flight.join(F.broadcast(top.orderBy(F.desc("top"), "queue").limit(CURVES)), "queue")
        .crossJoin(F.broadcast(ends))
        .withColumn("step_us", step_us)
        .groupBy(
            "queue", "top", "per_step", "step_us", (F.col("minute") - since % step_us).alias("at")
        )
        .agg(
            F.max("peak").alias("peak"),
            (F.sum("mean") / F.col("per_step")).alias("mean"),
            F.max("quota_share").alias("quota_share"),
            F.max("slots").alias("slots"),
        )
        .orderBy(F.desc("top"), "queue", "at")
    )


def _calls(calls: DataFrame) -> DataFrame:
    """Return calls by queue and kind."""
    sums = [F.sum(name).alias(name) for name in _CALL_SUMS]
    return calls.groupBy("queue", "kind").agg(*sums).orderBy(F.desc("cost_usd"), "queue", "kind")


def _latest(recommendations: DataFrame) -> DataFrame:
    """Return the newest recommendations."""
    newest = recommendations.agg(F.max(PARTITION).alias(PARTITION))
    return recommendations.join(F.broadcast(newest), PARTITION).orderBy(
        F.desc("messages"), "queue", F.asc_nulls_first("task"), "calls_per_1000", "rank"
    )


def _rejects(rejects: DataFrame) -> DataFrame:
    """Return the files with the most rejects."""
    sums = rejects.groupBy("reason", "file").agg(F.sum("lines").alias("lines"))
    return sums.orderBy(F.desc("lines"), "file", "reason").limit(SHOWN)
