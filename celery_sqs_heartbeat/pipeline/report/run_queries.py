"""The report's queries about how long tasks ran."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.report.queries import Rows

#: Tasks whose durations are drawn.
TASKS = 8


def tasks(durations: DataFrame) -> DataFrame:
    """Return the tasks that took the most time."""
    runs = durations.where(F.col("measure") == "run")
    return (
        runs.groupBy("queue", "task")
        .agg(
            F.sum("censored").alias("censored"),
            F.sum("sum_us").alias("sum_us"),
        )
        .orderBy(F.desc("sum_us"), "queue", "task")
        .limit(TASKS)
    )


def of(durations: DataFrame, tasks: Rows) -> DataFrame:
    """Return the histograms of some tasks."""
    is_shown = F.lit(False)
    for task in tasks:
        is_shown = is_shown | (
            F.col("queue").eqNullSafe(F.lit(task["queue"]))
            & F.col("task").eqNullSafe(F.lit(task["task"]))
        )
    return durations.where(is_shown)


def bins(durations: DataFrame) -> DataFrame:
    """Return run times as one histogram for each task."""
    return (
        durations.where(F.col("measure") == "run")
        .groupBy("queue", "task", "bin")
        .agg(F.sum(F.col("spans") + F.col("censored")).alias("runs"))
        .orderBy("queue", "task", "bin")
    )
