"""Quantiles of the durations' histograms, and runs longer than the visibility timeout."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.tables.bins import bin_column, middle_column
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of

#: Larger than rounding errors of shares that are sums of logarithms.
_TINY = 1e-9
#: Logarithm of a survival of 0.
_NOBODY = -1e6


def quantiles_of(
    durations: DataFrame,
    by: Sequence[str] = ("queue", "task", "measure"),
    parts: Sequence[float] = (0.5, 0.99, 0.999),
) -> DataFrame:
    """Return `spans`, `censored` and the quantiles (`p50`, `p99`, `p99_9`, ...) by some columns.

    Quantiles are microseconds, within 1 %, by the Kaplan-Meier estimate: durations that have not
    ended count among those that reached their bin. Null if no end was seen that late.
    """
    keys = list(by)
    bins = durations.groupBy(*keys, "bin").agg(
        F.sum("spans").alias("spans"), F.sum("censored").alias("censored")
    )
    upwards = Window.partitionBy(*keys).orderBy("bin")
    downwards = Window.partitionBy(*keys).orderBy(F.desc("bin"))
    at_risk = bins.withColumn("at_risk", F.sum(F.col("spans") + F.col("censored")).over(downwards))
    survivals = at_risk.withColumn("ended_by", 1 - F.exp(F.sum(_log_survival()).over(upwards)))
    return survivals.groupBy(*keys).agg(
        F.sum("spans").alias("spans"),
        F.sum("censored").alias("censored"),
        *(_first_span(part).alias(name_of(part)) for part in parts),
    )


def tails_of(durations: DataFrame, by: Sequence[str] = ("queue", "task", "vt")) -> DataFrame:
    """Return how many run times are longer than the visibility timeout at their receive.

    `outlived` counts those in later bins than the timeout's (more than 2 % longer), including
    those that still run. `share` is their part of all.
    """
    runs = durations.where((F.col("measure") == "run") & F.col("vt").isNotNull())
    everything = F.col("spans") + F.col("censored")
    is_longer = F.col("bin") > bin_column(us_of(F.col("vt")))
    return (
        runs.groupBy(*by)
        .agg(
            F.sum(everything).alias("runs"),
            F.sum(F.when(is_longer, everything).otherwise(0)).alias("outlived"),
        )
        .withColumn("share", F.col("outlived") / F.col("runs"))
    )


def name_of(part: float) -> str:
    """Return the name of a quantile's column: `p99_9` for 0.999."""
    return f"p{part * 100:g}".replace(".", "_")


def _log_survival() -> Column:
    hazard = F.col("spans") / F.col("at_risk")
    return F.when(F.col("spans") == F.col("at_risk"), F.lit(_NOBODY)).otherwise(F.log1p(-hazard))


def _first_span(part: float) -> Column:
    reached = (F.col("spans") > 0) & (F.col("ended_by") >= part - _TINY)
    return middle_column(F.min(F.when(reached, F.col("bin"))))
