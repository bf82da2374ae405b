"""Tells of each pair's first worker whether it was to extend the lease, and how long it lived."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def with_worker(pairs: DataFrame, workers: DataFrame) -> DataFrame:
    """Add `first_last_seen`, and `is_opted_out`: whether the task has `sqs_heartbeat=False`.

    By what the worker's first line says of its settings. Where that is not known, no task has
    opted out.
    """
    of_first = workers.groupBy(F.col("wid").alias("of_wid")).agg(
        F.max("last_seen").alias("first_last_seen"),
        F.max(opting_tasks()).alias("first_tasks"),
    )
    return (
        pairs.join(F.broadcast(of_first), F.col("first.wid") == F.col("of_wid"), "left")
        .withColumn("is_opted_out", has_opted_out(F.col("first_tasks"), F.col("task")))
        .drop("first_tasks", "of_wid")
    )


def opting_tasks() -> Column:
    """Return what a worker says of its tasks, where any has opted out."""
    tasks = F.col("settings")["tasks"]
    return F.when(tasks.contains("extend=False"), tasks)


def has_opted_out(tasks: Column, task: Column) -> Column:
    """Return whether a task is one that is not extended.

    Args:
        tasks: As the worker says of them: a dict of `Rules` by their names, as text.
    """
    own = F.split_part(tasks, F.concat(F.lit("'"), task, F.lit("': Rules(")), F.lit(2))
    extend = F.split_part(own, F.lit("extend="), F.lit(2))
    return F.coalesce(extend.startswith("False"), F.lit(False))
