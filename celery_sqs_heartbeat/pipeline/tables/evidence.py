"""Collects evidence about the lease of each pair's first execution, for its cause.

The calls for a lease are read twice: first for the last extension in time, then for the outcomes of
later calls. So no pair has a list of its calls, of which there may be thousands, and only the
pairs' own deliveries pass the scan of the events.

Lines of a worker are missing, as far as its own journal shows it, in these times:

| sign | from | to |
|---|---|---|
| a gap in the worker's numbers | the line before it | the line after it |
| no `worker-stopped`, and a segment of its last day can't be read | its last line | `SILENT_US` \
later |

Such a hole says something about the worker's own messages only.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import CALLED, KEEPER_LATE, PERMISSIONS
from celery_sqs_heartbeat.leases.events import REFUSALS, Outcome
from celery_sqs_heartbeat.leases.events import EventKind as Kind
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.spark import frame_of, us_of
from celery_sqs_heartbeat.pipeline.tables.attempts import SILENT_US
from celery_sqs_heartbeat.pipeline.tables.events import missing

#: Uncertainty because of clocks and the time that an answer takes, in microseconds.
TOLERANCE_US = 1_000_000
#: A call that takes this part of the visibility timeout is slow. It is half of the default
#: threshold.
SLOW_PART = 1 / 6

#: Errors that SQS itself answered, such as HTTP 429, 503 and 500.
_ERRORS = (Outcome.THROTTLED.value, Outcome.FAILED.value, Outcome.UNSURE.value)
#: No answer from SQS: none at all, or a gateway's HTTP 502 or 504.
_UNANSWERED = (Outcome.UNKNOWN.value,)
#: SQS does not permit the action, or does not show the queue to the worker at all.
_REFUSED = tuple(sorted(each.value for each in REFUSALS))
_TRIES = (Kind.LEASE_EXTENDED.value, Kind.EXTENSION_FAILED.value)

#: Most leases that are broadcast, at some 200 bytes each. If there are more, events are shuffled.
MOST_BROADCAST = 250_000
#: The columns that identify a lease: the first delivery, until the message's next receive.
_LEASE = ("first_dlv", "next_received")

#: A queue that refuses one of these actions refuses the other, too.
_EXTENDING = (Action.EXTEND.value, Action.RELEASE.value)


class _Hole(NamedTuple):
    """A time from which lines of a worker are missing, in microseconds."""

    wid: str
    since: int
    until: int


def with_evidence(
    pairs: DataFrame, events: DataFrame, workers: DataFrame, rejects: DataFrame
) -> DataFrame:
    """Add to each pair everything that the rules of `duplicates` need.

    Args:
        pairs: Read several times, so this must be cheap.
        rejects: Rejects of the segments that the events are from.
    """
    holes = _holes_of(events, workers, rejects)
    return _with_losses(_with_worker(_with_calls(pairs, events), workers), pairs, holes)


def _with_calls(pairs: DataFrame, events: DataFrame) -> DataFrame:
    """Add the outcomes of the calls for a pair's first attempt, up to the next receive."""
    is_small = pairs.count() <= MOST_BROADCAST

    def beside(leases: DataFrame) -> DataFrame:
        return F.broadcast(leases) if is_small else leases

    named = pairs.withColumn("first_dlv", F.col("first.dlv"))
    leases = (
        named.select(
            *_LEASE,
            "queue",
            F.col("first.wid").alias("first_wid"),
            F.col("first.received").alias("first_received"),
            us_of(F.col("first.vt")).alias("vt_us"),
        )
        # If two pairs had the same lease, each would exist twice.
        .dropDuplicates(list(_LEASE))
    )
    calls = events.where(F.col("ev").isin(*CALLED, Kind.LEASE_CAPPED.value)).withColumn(
        "planned", F.col("ts") - F.coalesce("lat_us", F.lit(0))
    )
    good = _good_extensions(beside(leases), calls)
    sure_until = F.coalesce("good_until", F.col("first_received") + F.col("vt_us"))
    sure = (
        leases.join(beside(good), [*_LEASE], "left")
        .withColumn("sure_until", sure_until)
        .drop("first_received", "good_until")
        # Read twice below.
        .persist()
    )
    found = (
        sure.join(beside(_since(beside(sure), calls)), [*_LEASE], "left")
        .join(beside(_surroundings(sure, events)), [*_LEASE], "left")
        .drop("first_wid", "vt_us", "queue")
    )
    return named.join(beside(found), [*_LEASE], "left")


def _good_extensions(leases: DataFrame, calls: DataFrame) -> DataFrame:
    """Return the last extension in time of each lease, and until when the lease was certain."""
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
        .groupBy(*_LEASE)
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


def _surroundings(leases: DataFrame, events: DataFrame) -> DataFrame:
    """Return how long the keeper was delayed when each lease expired, and what was refused.

    `late_us` is the delay. `denied_at` is the time since which the queue refused all extensions of
    the worker, if it still did. The journal has that line for one message only, and the worker
    tries only that one again.
    """
    ev, ts = F.col("ev"), F.col("ts")
    is_late = ev == KEEPER_LATE
    is_permission = ev.isin(*PERMISSIONS) & F.col("act").isin(*_EXTENDING)
    lines = events.where(is_late | is_permission).select(
        "ev", "wid", "ts", "late_us", F.col("queue").alias("of_queue")
    )
    ran_out = is_late & (ts >= F.col("sure_until") - TOLERANCE_US)
    ran_out &= ts - F.col("late_us") < F.col("next_received")
    is_before = (F.col("of_queue") == F.col("queue")) & (ts < F.col("next_received"))
    denied_at = F.max(F.when(ev == Kind.PERMISSION_DENIED.value, ts))
    granted_at = F.max(F.when(ev == Kind.PERMISSION_GRANTED.value, ts))
    return (
        leases.join(
            F.broadcast(lines),
            (F.col("wid") == F.col("first_wid")) & (ran_out | (~is_late & is_before)),
        )
        .groupBy(*_LEASE)
        .agg(
            F.max("late_us").alias("late_us"),
            F.when(denied_at > F.coalesce(granted_at, F.lit(0)), denied_at).alias("denied_at"),
        )
    )


def _with_worker(pairs: DataFrame, workers: DataFrame) -> DataFrame:
    """Add `first_last_seen`, and `is_opted_out`: whether the task has `sqs_heartbeat=False`.

    It uses the settings in the worker's first line. If that line is not known, no task counts as
    opted out.
    """
    of_first = workers.groupBy(F.col("wid").alias("of_wid")).agg(
        F.max("last_seen").alias("first_last_seen"),
        F.max(_opting_tasks()).alias("first_tasks"),
    )
    return (
        pairs.join(F.broadcast(of_first), F.col("first.wid") == F.col("of_wid"), "left")
        .withColumn("is_opted_out", _has_opted_out(F.col("first_tasks"), F.col("task")))
        .drop("first_tasks", "of_wid")
    )


def _opting_tasks() -> Column:
    """Return a worker's setting for its tasks, if any task has opted out."""
    tasks = F.col("settings")["tasks"]
    return F.when(tasks.contains("extend=False"), tasks)


def _has_opted_out(tasks: Column, task: Column) -> Column:
    """Return whether a task's lease is not extended.

    Args:
        tasks: The worker's setting: a dict of `Rules` by task name, as text.
    """
    own = F.split_part(tasks, F.concat(F.lit("'"), task, F.lit("': Rules(")), F.lit(2))
    extend = F.split_part(own, F.lit("extend="), F.lit(2))
    return F.coalesce(extend.startswith("False"), F.lit(False))


def _holes_of(events: DataFrame, workers: DataFrame, rejects: DataFrame) -> list[_Hole]:
    """Return the holes of all workers. Workers are few, so their facts are collected."""
    lives = workers.groupBy("wid").agg(
        F.max("last_seen").alias("last_seen"),
        F.max("stopped").alias("stopped"),
        F.max(PARTITION).alias("last_day"),
        missing().alias("missing"),
    )
    unread, holes, incomplete = _unread_days(rejects), [], []
    for life in lives.where("last_seen IS NOT NULL").collect():
        wid, last = life["wid"], life["last_seen"]
        if life["missing"]:
            incomplete.append(wid)
        if life["stopped"] is None and any(day >= life["last_day"] for day in unread[wid]):
            holes.append(_Hole(wid, last, last + SILENT_US))
    return [*holes, *_gaps_of(events, incomplete)]


def _unread_days(rejects: DataFrame) -> defaultdict[str, list[datetime.date]]:
    """Return the days of each worker's segments that could not be read completely."""
    wid = F.regexp_extract("file", "worker=([^/]+)/", 1).alias("wid")
    days = defaultdict[str, list[datetime.date]](list)
    for row in rejects.select(wid, PARTITION).distinct().collect():
        days[row["wid"]].append(row[PARTITION])
    return days


def _gaps_of(events: DataFrame, wids: list[str]) -> Iterator[_Hole]:
    """Yield the gaps in the numbers of these workers."""
    if not wids:
        return
    theirs = frame_of(events.sparkSession, [{"wid": wid} for wid in wids], "wid string")
    in_order = Window.partitionBy("wid").orderBy("seq")
    numbered = (
        events.select("wid", "seq", "ts")
        .join(F.broadcast(theirs), "wid", "semi")
        .withColumn("seq_before", F.lag("seq").over(in_order))
        .withColumn("ts_before", F.lag("ts").over(in_order))
    )
    for row in numbered.where(F.col("seq") > F.col("seq_before") + 1).collect():
        # A clock may have been set back meanwhile.
        yield _Hole(row["wid"], min(row["ts_before"], row["ts"]), max(row["ts_before"], row["ts"]))


def _with_losses(known: DataFrame, pairs: DataFrame, holes: list[_Hole]) -> DataFrame:
    """Add `lost_until`: the latest time from which lines of the first worker are missing.

    It is between the first receive and the next one, and null if no line is missing then.

    Args:
        known: The pairs with everything else that is known of them.
        pairs: Read once more, so this must be cheap.
    """
    # Usually there is none, and then the plan is smaller.
    if not holes:
        return known.withColumn("lost_until", F.lit(None).cast("bigint"))
    rows = [hole._asdict() for hole in holes]
    missing = frame_of(pairs.sparkSession, rows, "wid string, since bigint, until bigint")
    begins_before = F.col("since") <= F.col("next_received") + TOLERANCE_US
    ends_after = F.col("until") >= F.col("first.received") - TOLERANCE_US
    lost = (
        pairs.select(F.col("first.dlv").alias("first_dlv"), "next_received", "first")
        .join(
            F.broadcast(missing), (F.col("first.wid") == F.col("wid")) & begins_before & ends_after
        )
        .groupBy(*_LEASE)
        .agg(F.max(F.least("until", "next_received")).alias("lost_until"))
    )
    return known.join(lost, [*_LEASE], "left")
