"""How long messages took, and how many were in flight at once.

**Durations** are additive log-histograms. A histogram takes as many rows for a billion durations as
for a thousand, and those of several days add up.

**In flight**, the changes within each minute are sorted and added up, starting from a level of 0.
Then the net changes of the minutes are added up by queue. Nothing longer than a minute is sorted,
so one hot queue does not put the work on one core. A change is an integer, and the changes of a
minute are an array, because sorting that is faster than a window over rows.

A restarted worker counts as two workers, which never run at the same time. So the slots of a day
are the most at any one time, not the sum over all of its workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.pipeline.schema import DURATIONS, IN_FLIGHT, PARTITION, RATIO
from celery_sqs_heartbeat.pipeline.spark import day_of, shape, us_of

_LOG_RATIO = math.log(RATIO)
#: A share below this is a rounding error.
_TINY = 1e-12
#: Most messages in flight on a standard queue (SQS Developer Guide, "Quotas").
QUOTA = 120_000

_MINUTE = 60_000_000
_DAY_US = 86_400_000_000
_LONGEST_US = SQS.longest_timeout * 1_000_000


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


def in_flight_of(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the peak and the mean of each queue's minutes with messages in flight."""
    stays = _stays_of(attempts)
    every_minute = _fill(_with_levels(_minutes_of(_changes_of(stays))))
    days = every_minute.withColumn(PARTITION, day_of(F.col("minute"))).withColumn(
        "quota_share", F.col("peak") / F.lit(QUOTA)
    )
    slots = F.broadcast(_slots_of(stays, workers))
    return shape(days.join(slots, ["queue", PARTITION], "left"), IN_FLIGHT)


def _changes_of(stays: DataFrame) -> DataFrame:
    """Return when each queue had one message more, or one less.

    `change` is twice the microseconds since the `minute`, plus 1 if a message arrived. So a message
    that leaves at the same microsecond at which another one arrives has left before.
    """
    more_and_less = F.array(
        F.struct(F.col("begin").alias("at"), F.lit(1).alias("is_more")),
        F.struct(F.col("end").alias("at"), F.lit(0).alias("is_more")),
    )
    since = F.pmod("at", F.lit(_MINUTE))
    return stays.select("queue", F.inline(more_and_less)).select(
        "queue",
        (F.col("at") - since).alias("minute"),
        (since * 2 + F.col("is_more")).cast("int").alias("change"),
    )


def _minutes_of(changes: DataFrame) -> DataFrame:
    """Return the sums of the changes of each minute, relative to the level before it.

    `area` is how much they add to the minute, in messages times microseconds.
    """
    step = F.pmod("change", F.lit(2)) * 2 - 1
    until_next_minute = F.lit(_MINUTE) - F.floor(F.col("change") / F.lit(2))
    return (
        changes.groupBy("queue", "minute")
        .agg(
            F.sum(step).alias("net"),
            F.sum(step * until_next_minute).alias("area"),
            F.sort_array(F.collect_list("change")).alias("changes"),
        )
        .withColumn("rise", _highest("changes", lambda change: F.pmod(change, F.lit(2)) * 2 - 1))
        .drop("changes")
    )


def _with_levels(minutes: DataFrame) -> DataFrame:
    """Add the levels in each minute and after it, and the next minute with changes."""
    in_order = Window.partitionBy("queue").orderBy("minute")
    before = F.col("after") - F.col("net")
    return (
        minutes.withColumn("after", F.sum("net").over(in_order))
        .withColumn("next", F.lead("minute").over(in_order))
        .withColumn("peak", before + F.col("rise"))
        .withColumn("mean", before + F.col("area") / F.lit(_MINUTE))
    )


def _fill(minutes: DataFrame) -> DataFrame:
    """Add the minutes in which nothing changed while messages were in flight."""
    last = F.when(F.col("after") > 0, F.col("next") - _MINUTE)
    all_until_next = F.sequence("minute", F.coalesce(last, "minute"), F.lit(_MINUTE))
    filled = minutes.withColumn("each", F.explode(all_until_next))
    is_own = F.col("each") == F.col("minute")
    return filled.select(
        "queue",
        F.col("each").alias("minute"),
        F.when(is_own, F.col("peak")).otherwise(F.col("after")).alias("peak"),
        F.when(is_own, F.col("mean")).otherwise(F.col("after")).alias("mean"),
    )


def _stays_of(attempts: DataFrame) -> DataFrame:
    """Return `queue`, `wid`, and `begin` and `end` in microseconds, of each attempt.

    A running attempt is in flight until the end of the data. An abandoned one is in flight until
    its last confirmed lease ends. Both are limited by the end of the data, and by SQS's longest
    time.
    """
    confirmed = F.coalesce("last_extended", "received")
    lease_end = F.greatest("last_event", confirmed + us_of(F.coalesce("last_vt", "vt", F.lit(0))))
    known_end = F.when(F.col("ended_as") == "running", latest_end()).otherwise(
        F.least(lease_end, latest_end())
    )
    end = F.greatest(F.coalesce("ended", known_end), "received")
    return with_end_of_data(attempts).select(
        "queue", "wid", F.col("received").alias("begin"), end.alias("end")
    )


def with_end_of_data(attempts: DataFrame) -> DataFrame:
    """Add `end_of_data`: the last event of all data, in microseconds."""
    end_of_data = attempts.agg(F.max("last_event").alias("end_of_data"))
    return attempts.crossJoin(F.broadcast(end_of_data))


def latest_end() -> Column:
    """Return when a message is certainly no longer in flight, in microseconds.

    It is within twelve hours of the receive, so later days change nothing.
    """
    return F.least("end_of_data", F.col("received") + _LONGEST_US)


def _slots_of(stays: DataFrame, workers: DataFrame) -> DataFrame:
    """Return `slots` by queue and day, of the workers that have messages of the queue that day."""
    spans = stays.groupBy(
        "queue", "wid", day_of(F.col("begin")).alias("first"), day_of(F.col("end")).alias("last")
    ).agg(F.lit(None))
    days = spans.select(
        "queue", "wid", F.explode(F.sequence("first", "last")).alias(PARTITION)
    ).distinct()
    change = F.struct("at", "is_less", "step")
    return (
        days.join(F.broadcast(_slot_changes_of(workers)), ["wid", PARTITION])
        .groupBy("queue", PARTITION)
        .agg(F.sort_array(F.collect_list(change)).alias("changes"))
        .select("queue", PARTITION, _highest("changes", _step).alias("slots"))
    )


def _step(change: Column) -> Column:
    return change["step"]


def _slot_changes_of(workers: DataFrame) -> DataFrame:
    """Return when each worker adds and removes slots on each day, and how many.

    A worker runs from its first line of the day to its last. If it also wrote on the day before, it
    runs from midnight; if it writes on the next day, it runs until midnight. A worker that ends at
    the same microsecond at which another one starts counts together with it.
    """
    in_order = Window.partitionBy("wid").orderBy(PARTITION)
    wrote_before = F.lag(PARTITION).over(in_order) == F.date_sub(PARTITION, 1)
    writes_after = F.lead(PARTITION).over(in_order) == F.date_add(PARTITION, 1)
    midnight = F.col("first_seen") - F.pmod("first_seen", F.lit(_DAY_US))
    lives = workers.select(
        "wid",
        PARTITION,
        F.when(wrote_before, midnight).otherwise(F.col("first_seen")).alias("begin"),
        F.when(writes_after, midnight + _DAY_US)
        .otherwise(F.coalesce("last_seen", "first_seen"))
        .alias("end"),
    )
    sizes = workers.groupBy("wid").agg(F.max("concurrency").alias("size"))
    known = lives.join(F.broadcast(sizes.where(F.col("size").isNotNull())), "wid")
    more_and_less = F.array(
        F.struct(
            F.col("begin").alias("at"), F.lit(0).alias("is_less"), F.col("size").alias("step")
        ),
        F.struct(
            F.col("end").alias("at"), F.lit(1).alias("is_less"), (-F.col("size")).alias("step")
        ),
    )
    return known.select("wid", PARTITION, F.inline(more_and_less))


def _highest(changes: str, step: Callable[[Column], Column]) -> Column:
    """Return the highest level that a column's changes reach, starting from 0.

    Args:
        changes: Name of a column of arrays, each in order.
        step: Returns how much a change adds to the level.
    """

    def after(level: Column, change: Column) -> Column:
        now = level["now"] + step(change)
        return _level(now, F.greatest(level["highest"], now))

    return F.aggregate(changes, _level(0, 0), after)["highest"]


def _level(now: Column | int, highest: Column | int) -> Column:
    both = {"now": now, "highest": highest}
    return F.struct(*(F.lit(value).cast("int").alias(name) for name, value in both.items()))
