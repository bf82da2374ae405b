"""Run times and waits as additive log-histograms.

A histogram takes as many rows for a billion durations as for a thousand, and those of several days
add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import DURATIONS, PARTITION, RATIO
from celery_sqs_heartbeat.pipeline.tables.in_flight import latest_end, with_end_of_data
from celery_sqs_heartbeat.pipeline.tables.shaping import shape

_LOG_RATIO = math.log(RATIO)
#: A share below this is a rounding error.
_TINY = 1e-12


def bin_of(span_us: float) -> int:
    """Return the bin of a duration in microseconds."""
    return math.floor(math.log(max(span_us, 1)) / _LOG_RATIO)


def middle_of(number: int) -> float:
    """Return the geometric middle of a bin, in microseconds. All of the bin is within 1 % of it."""
    return float(RATIO ** (number + 0.5))


def bin_column(span_us: Column) -> Column:
    """Return the bin of a column of microseconds."""
    return F.floor(F.ln(F.greatest(span_us, F.lit(1))) / F.lit(_LOG_RATIO)).cast("int")


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


@dataclass(frozen=True)
class Histogram:
    """Durations by bin. Those that had not ended when they were seen last are `censored`.

    Shares are the Kaplan-Meier estimate: a censored one counts among those that reached its bin,
    without an assumption about its end.
    """

    spans: Mapping[int, int] = field(default_factory=dict)
    censored: Mapping[int, int] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """How many have a known end."""
        return sum(self.spans.values())

    @property
    def count(self) -> int:
        """How many there are, including censored ones."""
        return self.ended + sum(self.censored.values())

    def shares(self) -> Iterator[tuple[int, float]]:
        """Return each bin with the share of durations that end in it.

        Durations longer than the last known end have no bin. Then the shares sum to less than 1.
        """
        at_risk, alive = self.count, 1.0
        for number in sorted(self.spans.keys() | self.censored.keys()):
            ended = self.spans.get(number, 0)
            share = alive * ended / at_risk
            if ended:
                yield number, share
            alive -= share
            at_risk -= ended + self.censored.get(number, 0)

    def distribution(self) -> Iterator[tuple[float, float]]:
        """Yield durations in microseconds and their shares, which sum to 1.

        Durations longer than the last known end are assumed to end in the last bin.
        """
        rest = 1.0
        for number, share in self.shares():
            rest -= share
            yield middle_of(number), share
        if self.count and rest > _TINY:
            yield self.longest(), rest

    def quantile(self, part: float) -> float | None:
        """Return the duration, in microseconds, that this part of all do not exceed.

        It is within 1 %. None if no end was seen that late.
        """
        sum_of_shares = 0.0
        for number, share in self.shares():
            sum_of_shares += share
            if sum_of_shares >= part - _TINY:
                return middle_of(number)
        return None

    def longest(self) -> float:
        """Return the longest, in microseconds; 0 if there is none."""
        known = self.spans.keys() | self.censored.keys()
        return middle_of(max(known)) if known else 0.0
