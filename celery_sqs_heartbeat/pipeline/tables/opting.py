"""Adds, for each pair's first worker, whether it had to extend the lease, and its last line."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def with_worker(pairs: DataFrame, workers: DataFrame) -> DataFrame:
    """Add `first_last_seen`, and `is_opted_out`: whether the task has `sqs_heartbeat=False`.

    It uses the settings in the worker's first line. If that line is not known, no task counts as
    opted out.
    """
    of_first = workers.groupBy(F.col("wid").alias("of_wid")).agg(
        F.max("last_seen").alias("first_last_seen"),
        F.max(_opting_tasks()).alias("first_tasks"),
    )
    return (
        pairs.join(F.broadcast(of_first), F.col("first.wid") == F.col("of_wid"), "left")
        .withColumn("is_opted_out", _has_opted_out(F.col("first_tasks"), F.col("task")))
        .drop("first_tasks", "of_wid")
    )


def _opting_tasks() -> Column:
    """Return a worker's setting for its tasks, if any task has opted out."""
    tasks = F.col("settings")["tasks"]
    return F.when(tasks.contains("extend=False"), tasks)


def _has_opted_out(tasks: Column, task: Column) -> Column:
    """Return whether a task's lease is not extended.

    Args:
        tasks: The worker's setting: a dict of `Rules` by task name, as text.
    """
    own = F.split_part(tasks, F.concat(F.lit("'"), task, F.lit("': Rules(")), F.lit(2))
    extend = F.split_part(own, F.lit("extend="), F.lit(2))
    return F.coalesce(extend.startswith("False"), F.lit(False))
