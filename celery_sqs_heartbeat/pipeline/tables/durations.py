"""Run times and waits as additive histograms."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import DURATIONS, PARTITION
from celery_sqs_heartbeat.pipeline.tables.bins import bin_column
from celery_sqs_heartbeat.pipeline.tables.shaping import shape
from celery_sqs_heartbeat.pipeline.tables.stays import latest_end, with_end_of_data


def durations_of(attempts: DataFrame) -> DataFrame:
    """Return the histograms of the durations between receive, start and end of each attempt.

    A duration that has not ended at the end of the data is censored, with its length until then. So
    is an interrupted one whose worker died, with its length until its last event. A run that
    continues under the next delivery counts there.
    """
    spans = (
        with_end_of_data(attempts)
        .withColumn("seen_until", _seen_until())
        .select(PARTITION, "queue", "task", "vt", F.explode(_spans()).alias("span"))
        .select(PARTITION, "queue", "task", "vt", "span.*")
        .where(F.col("us").isNotNull())
        .withColumn("us", F.greatest("us", F.lit(0)))
    )
    histograms = spans.groupBy(
        PARTITION, "queue", "task", "measure", "vt", bin_column(F.col("us")).alias("bin")
    ).agg(
        F.count_if(~F.col("is_censored")).alias("spans"),
        F.count_if("is_censored").alias("censored"),
        F.sum("us").alias("sum_us"),
    )
    return shape(histograms, DURATIONS)


def _seen_until() -> Column:
    """When an attempt without an end of its task was seen last; null for others."""
    return (
        F.when(F.col("finished").isNotNull(), F.lit(None))
        .when(F.col("ended_as") == "running", latest_end())
        .otherwise(F.col("last_event"))
    )


def _spans() -> Column:
    started, received, until = F.col("started"), F.col("received"), F.col("seen_until")
    is_waiting = started.isNull()
    goes_on = F.col("ended_as") == "continued"
    so_far = F.when(F.coalesce(goes_on, F.lit(False)), F.lit(None)).otherwise(until - started)
    return F.array(
        _span("run", F.coalesce("run_us", so_far), F.col("run_us").isNull()),
        _span(
            "wait",
            F.coalesce("wait_us", F.when(is_waiting, until - received)),
            F.col("wait_us").isNull(),
        ),
        _span(
            "held",
            F.coalesce("finished", until) - received,
            F.col("finished").isNull(),
        ),
    )


def _span(measure: str, us: Column, is_censored: Column) -> Column:
    return F.struct(
        F.lit(measure).alias("measure"),
        us.alias("us"),
        is_censored.alias("is_censored"),
    )
