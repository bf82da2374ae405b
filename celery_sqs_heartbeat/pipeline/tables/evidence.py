"""What the journals say of the lease of each pair's first execution, for `causes` to judge.

The calls for a lease are looked at twice: once for the last extension in time, then for what
became of the calls since. So no pair carries a list of its calls, which may be thousands, and
nothing but the pairs' own deliveries gets beyond the scan of the events.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.core.calls import Outcome
from celery_sqs_heartbeat.core.events import EventKind as Kind
from celery_sqs_heartbeat.journal.events import CALLED, KEEPER_LATE
from celery_sqs_heartbeat.pipeline.tables.causes import SLOW_PART
from celery_sqs_heartbeat.pipeline.tables.keeping import Keep
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of

_SECOND = 1_000_000
#: What SQS answered itself, and did not do, or did not say so of: HTTP 429, 503, 500 and the like.
_ERRORS = (Outcome.THROTTLED.value, Outcome.FAILED.value, Outcome.UNSURE.value)
#: No answer of SQS: none at all, or that of a gateway before it, HTTP 502 or 504.
_UNANSWERED = (Outcome.UNKNOWN.value,)

#: Leases that are broadcast, at the most: some 200 bytes of each. Of more, the events are shuffled.
MOST_BROADCAST = 250_000
#: A lease: the first's delivery, until the next receive of the message.
_LEASE = ("first_dlv", "next_received")


def with_evidence(pairs: DataFrame, events: DataFrame, keep: Keep) -> DataFrame:
    """Add to each pair what became of the calls for its first attempt, up to the next receive.

    Args:
        pairs: Are read several times: let that be cheap.
        keep: Is given what is read more than once.
    """
    is_small = pairs.count() <= MOST_BROADCAST

    def beside(leases: DataFrame) -> DataFrame:
        return F.broadcast(leases) if is_small else leases

    named = pairs.withColumn("first_dlv", F.col("first.dlv"))
    leases = (
        named.where(~F.col("has_gap"))
        .select(
            *_LEASE,
            F.col("first.wid").alias("first_wid"),
            F.col("first.received").alias("first_received"),
            us_of(F.col("first.vt")).alias("vt_us"),
        )
        # Were two pairs of one lease, each would be there twice.
        .dropDuplicates(list(_LEASE))
    )
    calls = events.where(F.col("ev").isin(*CALLED, Kind.LEASE_CAPPED.value)).withColumn(
        "planned", F.col("ts") - F.coalesce("lat_us", F.lit(0))
    )
    good = _good_extensions(beside(leases), calls)
    sure_until = F.coalesce("good_until", F.col("first_received") + F.col("vt_us"))
    sure = keep(
        leases.join(beside(good), [*_LEASE], "left")
        .withColumn("sure_until", sure_until)
        .drop("first_received", "good_until")
    )
    told = (
        sure.join(beside(_since(beside(sure), calls)), [*_LEASE], "left")
        .join(beside(_late(sure, events)), [*_LEASE], "left")
        .drop("first_wid", "vt_us")
    )
    return named.join(beside(told), [*_LEASE], "left")


def _good_extensions(leases: DataFrame, calls: DataFrame) -> DataFrame:
    """Return the last extension of each lease that was in time, and until when it was sure."""
    is_in_time = (F.col("ev") == Kind.LEASE_EXTENDED.value) & (F.col("slack_us") > 0)
    good = calls.where(is_in_time).select("dlv", "ts", "planned", "vt")
    return (
        good.join(leases, F.col("dlv") == F.col("first_dlv"))
        .where(F.col("ts") <= F.col("next_received"))
        .groupBy(*_LEASE)
        .agg(
            F.max("ts").alias("good_at"),
            F.max(F.col("planned") + us_of(F.col("vt"))).alias("good_until"),
        )
    )


def _since(leases: DataFrame, calls: DataFrame) -> DataFrame:
    """Return what became of the calls planned after the last good one of each lease."""
    err, ts = F.col("err"), F.col("ts")
    good_at = F.coalesce("good_at", F.lit(0))
    is_since = (F.col("planned") >= good_at) & (F.col("planned") < F.col("next_received"))
    is_cap = (F.col("ev") == Kind.LEASE_CAPPED.value) & (ts <= F.col("next_received"))
    answered = is_since & err.isin(*_ERRORS)
    throttled = answered & (err == Outcome.THROTTLED.value)
    unanswered = is_since & err.isin(*_UNANSWERED)
    is_slow = is_since & (F.col("lat_us") > F.col("vt_us") * SLOW_PART)
    late = is_since & (F.col("ev") == Kind.LEASE_EXTENDED.value) & (F.col("slack_us") <= 0)
    return (
        calls.select("ev", "dlv", "ts", "planned", "slack_us", "lat_us", "err")
        .join(leases, F.col("dlv") == F.col("first_dlv"))
        .where(is_since | is_cap)
        .groupBy(*_LEASE)
        .agg(
            F.max(F.when(is_cap, ts)).alias("capped_at"),
            F.max(F.when(answered, ts)).alias("error_at"),
            F.count_if(answered).alias("errors"),
            F.count_if(throttled).alias("throttled"),
            F.max(F.when(unanswered, ts)).alias("unanswered_at"),
            F.count_if(unanswered).alias("unanswered"),
            F.max(F.when(is_slow, F.col("lat_us"))).alias("slow_us"),
            F.max(F.when(late, -F.col("slack_us"))).alias("extended_late_us"),
        )
    )


def _late(leases: DataFrame, events: DataFrame) -> DataFrame:
    """Return for how long the keeper stood still when each lease ran out."""
    late = events.where(F.col("ev") == KEEPER_LATE).select("wid", "ts", "late_us")
    ran_out = (F.col("ts") >= F.col("sure_until") - _SECOND) & (
        F.col("ts") - F.col("late_us") < F.col("next_received")
    )
    return (
        leases.join(F.broadcast(late), (F.col("wid") == F.col("first_wid")) & ran_out)
        .groupBy(*_LEASE)
        .agg(F.max("late_us").alias("late_us"))
    )
