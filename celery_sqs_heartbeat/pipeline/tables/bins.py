"""The bins of log-histograms, and how to find a duration's bin."""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import RATIO

_LOG_RATIO = math.log(RATIO)


def bin_of(span_us: float) -> int:
    """Return the bin of a duration in microseconds."""
    return math.floor(math.log(max(span_us, 1)) / _LOG_RATIO)


def middle_of(number: int) -> float:
    """Return the geometric middle of a bin, in microseconds. All of the bin is within 1 % of it."""
    return float(RATIO ** (number + 0.5))


def bin_column(span_us: Column) -> Column:
    """Return the bin of a column of microseconds."""
    return F.floor(F.ln(F.greatest(span_us, F.lit(1))) / F.lit(_LOG_RATIO)).cast("int")


def middle_column(number: Column) -> Column:
    """Return the geometric middle of a column of bins, in microseconds."""
    return F.pow(F.lit(RATIO), number + F.lit(0.5))
