"""The report's queries about stopped groups."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.report.queries import SHOWN

_GROUP = ("queue", "grp")


def grouped(attempts: DataFrame) -> DataFrame:
    """Return the number of receives from FIFO queues, and how many of them have a group."""
    return attempts.where(F.col("queue").endswith(".fifo")).agg(
        F.count("*").alias("receives"), F.count("grp").alias("with_group")
    )


def stop_sums(stops: DataFrame) -> DataFrame:
    """Return the number of stops, and of stopped groups."""
    return (
        stops.groupBy(*_GROUP)
        .agg(F.count("*").alias("stops"))
        .agg(F.count("*").alias("groups"), F.sum("stops").alias("stops"))
    )


def stopped_groups(stops: DataFrame) -> DataFrame:
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
