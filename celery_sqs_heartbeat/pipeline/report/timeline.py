"""The in-flight messages over time, reduced to the detail that a picture can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: Points of a line. More can't be distinguished on a page.
POINTS = 288
#: Queues that are drawn: those with the highest peaks.
QUEUES = 6
MINUTE_US = 60_000_000


def points(in_flight: DataFrame) -> Sequence[Mapping[str, Any]]:
    """Return peak and mean by queue and step: a few hundred steps in total.

    Minutes without a row count as 0 in a step's mean. `step_us` is the step's length.
    """
    ends = in_flight.agg(F.min("minute").alias("begin"), F.max("minute").alias("end")).first()
    if ends is None or ends["begin"] is None:
        return []
    minutes = (ends["end"] - ends["begin"]) // MINUTE_US + 1
    per_step = -(-minutes // POINTS)
    step_us = per_step * MINUTE_US
    top = (
        in_flight.groupBy("queue")
        .agg(F.max("peak").alias("top"))
        .orderBy(F.desc("top"), "queue")
        .limit(QUEUES)
    )
    step = F.expr(f"(minute - {ends['begin']}) div {step_us} * {step_us} + {ends['begin']}")
    thinned = (
        in_flight.join(F.broadcast(top), "queue")
        .groupBy("queue", "top", step.alias("at"))
        .agg(
            F.max("peak").alias("peak"),
            (F.sum("mean") / per_step).alias("mean"),
            F.max("quota_share").alias("quota_share"),
            F.max("slots").alias("slots"),
        )
        .orderBy(F.desc("top"), "queue", "at")
    )
    return [{**row.asDict(), "step_us": step_us} for row in thinned.collect()]
