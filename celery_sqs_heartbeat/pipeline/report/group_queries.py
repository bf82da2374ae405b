"""The report's questions on groups that stood still."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.report.queries import SHOWN

_GROUP = ("queue", "grp")


def grouped(attempts: DataFrame) -> DataFrame:
    """Return how many receives there were of FIFO queues, and how many tell their group."""
    return attempts.where(F.col("queue").endswith(".fifo")).agg(
        F.count("*").alias("receives"), F.count("grp").alias("with_group")
    )


def stop_sums(stops: DataFrame) -> DataFrame:
    """Return how many stops there were, and of how many groups."""
    return (
        stops.groupBy(*_GROUP)
        .agg(F.count("*").alias("stops"))
        .agg(F.count("*").alias("groups"), F.sum("stops").alias("stops"))
    )


def stopped_groups(stops: DataFrame) -> DataFrame:
    """Return the groups that stood still the longest, each with the message that did most of it."""
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
