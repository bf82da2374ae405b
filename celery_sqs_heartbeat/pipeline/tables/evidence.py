"""Collects evidence about the lease of each pair's first execution, for `cause_rules`.

The calls for a lease are read twice: first for the last extension in time, then for the outcomes of
later calls. So no pair has a list of its calls, of which there may be thousands, and only the
pairs' own deliveries pass the scan of the events.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import CALLED
from celery_sqs_heartbeat.leases.calls import REFUSALS, Outcome
from celery_sqs_heartbeat.leases.events import EventKind as Kind
from celery_sqs_heartbeat.pipeline.tables.failing import SLOW_PART
from celery_sqs_heartbeat.pipeline.tables.keeping import Keep
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of
from celery_sqs_heartbeat.pipeline.tables.surroundings import LEASE, surroundings

#: Errors that SQS itself answered, such as HTTP 429, 503 and 500.
_ERRORS = (Outcome.THROTTLED.value, Outcome.FAILED.value, Outcome.UNSURE.value)
#: No answer from SQS: none at all, or a gateway's HTTP 502 or 504.
_UNANSWERED = (Outcome.UNKNOWN.value,)
#: SQS does not permit the action, or does not show the queue to the worker at all.
_REFUSED = tuple(sorted(each.value for each in REFUSALS))
_TRIES = (Kind.LEASE_EXTENDED.value, Kind.EXTENSION_FAILED.value)

#: Most leases that are broadcast, at some 200 bytes each. If there are more, events are shuffled.
MOST_BROADCAST = 250_000


def with_evidence(pairs: DataFrame, events: DataFrame, keep: Keep) -> DataFrame:
    """Add to each pair the outcomes of the calls for its first attempt, up to the next receive.

    Args:
        pairs: Read several times, so this must be cheap.
        keep: Is called with frames that are read more than once.
    """
    is_small = pairs.count() <= MOST_BROADCAST

    def beside(leases: DataFrame) -> DataFrame:
        return F.broadcast(leases) if is_small else leases

    named = pairs.withColumn("first_dlv", F.col("first.dlv"))
    leases = (
        named.select(
            *LEASE,
            "queue",
            F.col("first.wid").alias("first_wid"),
            F.col("first.received").alias("first_received"),
            us_of(F.col("first.vt")).alias("vt_us"),
        )
        # If two pairs had the same lease, each would exist twice.
        .dropDuplicates(list(LEASE))
    )
    calls = events.where(F.col("ev").isin(*CALLED, Kind.LEASE_CAPPED.value)).withColumn(
        "planned", F.col("ts") - F.coalesce("lat_us", F.lit(0))
    )
    good = _good_extensions(beside(leases), calls)
    sure_until = F.coalesce("good_until", F.col("first_received") + F.col("vt_us"))
    sure = keep(
        leases.join(beside(good), [*LEASE], "left")
        .withColumn("sure_until", sure_until)
        .drop("first_received", "good_until")
    )
    found = (
        sure.join(beside(_since(beside(sure), calls)), [*LEASE], "left")
        .join(beside(surroundings(sure, events)), [*LEASE], "left")
        .drop("first_wid", "vt_us", "queue")
    )
    return named.join(beside(found), [*LEASE], "left")


def _good_extensions(leases: DataFrame, calls: DataFrame) -> DataFrame:
    """Return the last extension in time of each lease, and until when the lease was certain."""
    is_in_time = (F.col("ev") == Kind.LEASE_EXTENDED.value) & (F.col("slack_us") > 0)
    good = calls.where(is_in_time).select("dlv", "ts", "planned", "vt")
    return (
        good.join(leases, F.col("dlv") == F.col("first_dlv"))
        .where(F.col("ts") <= F.col("next_received"))
        .groupBy(*LEASE)
        .agg(
            F.max("ts").alias("good_at"),
            F.max(F.col("planned") + us_of(F.col("vt"))).alias("good_until"),
        )
    )


def _since(leases: DataFrame, calls: DataFrame) -> DataFrame:
    """Return the outcomes of the calls that were planned after each lease's last good one."""
    err, ts = F.col("err"), F.col("ts")
    good_at = F.coalesce("good_at", F.lit(0))
    is_since = (F.col("planned") >= good_at) & (F.col("planned") < F.col("next_received"))
    is_cap = (F.col("ev") == Kind.LEASE_CAPPED.value) & (ts <= F.col("next_received"))
    answered = is_since & err.isin(*_ERRORS)
    throttled = answered & (err == Outcome.THROTTLED.value)
    unanswered = is_since & err.isin(*_UNANSWERED)
    refused = is_since & err.isin(*_REFUSED) & (F.col("ev") == Kind.EXTENSION_FAILED.value)
    is_slow = is_since & (F.col("lat_us") > F.col("vt_us") * SLOW_PART)
    late = is_since & (F.col("ev") == Kind.LEASE_EXTENDED.value) & (F.col("slack_us") <= 0)
    return (
        calls.select("ev", "dlv", "ts", "planned", "slack_us", "lat_us", "err")
        .join(leases, F.col("dlv") == F.col("first_dlv"))
        .where(is_since | is_cap)
        .groupBy(*LEASE)
        .agg(
            F.max(F.when(is_cap, ts)).alias("capped_at"),
            F.max(F.when(answered, ts)).alias("error_at"),
            F.count_if(answered).alias("errors"),
            F.count_if(throttled).alias("throttled"),
            F.max(F.when(unanswered, ts)).alias("unanswered_at"),
            F.count_if(unanswered).alias("unanswered"),
            F.max(F.when(refused, ts)).alias("refused_at"),
            F.count_if(refused).alias("refused"),
            F.count_if(F.col("ev").isin(*_TRIES)).alias("tries"),
            F.max(F.when(is_slow, F.col("lat_us"))).alias("slow_us"),
            F.max(F.when(late, -F.col("slack_us"))).alias("extended_late_us"),
        )
    )
