"""Duplicates: executions of one message that overlap or both succeed, and why.

Only messages that were received more than once matter, and they are few: their ids' hashes
are broadcast, so that the others get into no shuffle. Each new execution is paired with the
attempt that had the task running before it, by SQS's count of receives, which no clock can
confuse. An execution that was cut off (its worker died, or gave the message back while it
ran) has no end in the journal: its pair is listed with an overlap that is not known.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.core.calls import Outcome
from celery_sqs_heartbeat.core.events import EventKind as Kind
from celery_sqs_heartbeat.journal.events import CALLED, KEEPER_LATE
from celery_sqs_heartbeat.pipeline.schema import DUPLICATES, PARTITION
from celery_sqs_heartbeat.pipeline.tables.causes import (
    SLOW_PART,
    first_that_holds,
    rules,
    was_released_while_running,
)
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape

_SECOND = 1_000_000
_OF_FIRST = (
    "wid", "rc", "dlv", "received", "started", "finished", "ended", "ended_as", "cause", "vt",
    "last_event",
)  # fmt: skip
_REFUSED = (Outcome.THROTTLED.value, Outcome.FAILED.value)


def duplicates_of(attempts: DataFrame, events: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the pairs with their causes."""
    pairs = _pairs(_in_order(_received_again(attempts)), workers)
    known = pairs.join(_calls(pairs, events), ["first_dlv", "second_dlv"], "left")
    judged = _with_late(known, events).withColumn("judged", first_that_holds(rules()))
    return shape(judged.withColumns(_told()), DUPLICATES)


def _told() -> dict[str, Column]:
    """Return the columns that tell why, and of the first execution and of the second."""
    columns = {name: F.col("judged")[name] for name in ("cause", "evidence")}
    for name in ("wid", "rc", "started", "finished", "ended_as"):
        first = F.col(f"first.{name}")
        other = F.col("rc") - 1 if name == "rc" else F.lit(None)
        columns[f"first_{name}"] = F.when(F.col("has_gap"), other).otherwise(first)
        columns[f"second_{name}"] = F.col(name)
    return columns


def _received_again(attempts: DataFrame) -> DataFrame:
    """Return the attempts of messages that were received more than once."""
    again = attempts.where(F.col("rc") > 1).select(F.xxhash64("msg").alias("hash")).distinct()
    return attempts.join(F.broadcast(again), F.xxhash64("msg") == F.col("hash"), "left_semi")


def _in_order(attempts: DataFrame) -> DataFrame:
    """Add the receive after each attempt, and the attempt that ran the task before it."""
    receives = Window.partitionBy("queue", "msg").orderBy("rc", "received", "dlv")
    before = receives.rowsBetween(Window.unboundedPreceding, -1)
    one_execution = Window.partitionBy("queue", "msg", "wid", "started")
    finished = F.when(F.col("started").isNotNull(), F.max("finished").over(one_execution))
    with_next = (
        attempts.withColumn("finished", F.coalesce(finished, F.col("finished")))
        .withColumn("next_received", F.lead("received").over(receives))
        .withColumn("next_rc", F.lead("rc").over(receives))
        .withColumn("has_gap", F.col("rc") > F.coalesce(F.lag("rc").over(receives), F.lit(0)) + 1)
    )
    ran = F.when(F.col("started").isNotNull(), F.struct(*_OF_FIRST, "next_received", "next_rc"))
    return with_next.withColumn("first", F.last(ran, ignorenulls=True).over(before))


def _pairs(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the new executions that have a part in a duplicate, with what came before."""
    is_new = F.col("started").isNotNull() & (
        F.coalesce(F.col("received_as") == "new", F.lit(True))
        | (F.col("started") >= F.col("received"))
    )
    end = workers.agg(F.max("last_seen").alias("data_end"))
    overlap = F.least(_end("first."), _end("")) - F.greatest("first.started", "started")
    is_cut_off = was_released_while_running("first") | (
        (F.col("first.ended_as") == "abandoned") & F.col("first.finished").isNull()
    )
    is_known = ~F.col("has_gap") & ~is_cut_off
    both = _succeeded("first.") & _succeeded("")
    candidates = attempts.where(is_new & (F.col("has_gap") | F.col("first").isNotNull()))
    return (
        candidates.crossJoin(F.broadcast(end))
        .withColumn("overlap_us", F.when(is_known, F.greatest(overlap, F.lit(0))))
        .withColumn("both_succeeded", F.when(~F.col("has_gap"), both & ~is_cut_off))
        .where(F.col("has_gap") | is_cut_off | (F.col("overlap_us") > 0) | F.col("both_succeeded"))
        .withColumn("next_received", F.coalesce("first.next_received", "received"))
        .withColumn(
            "next_rc", F.when(F.col("has_gap"), F.col("rc")).otherwise(F.col("first.next_rc"))
        )
        .withColumn("first_dlv", F.coalesce("first.dlv", F.lit("")))
        .withColumn("second_dlv", F.col("dlv"))
        .withColumn("vt_us", F.col("first.vt") * _SECOND)
        .withColumn(PARTITION, day_of(F.col("started")))
    )


def _end(prefix: str) -> Column:
    """Return when an execution ended; of one that was cut off, its last event."""
    is_over = F.col(f"{prefix}ended_as") == "abandoned"
    last = F.when(is_over, F.col(f"{prefix}last_event")).otherwise(F.col("data_end"))
    return F.coalesce(F.col(f"{prefix}finished"), last)


def _succeeded(prefix: str) -> Column:
    is_back = F.col(f"{prefix}cause").isNotNull() & F.col(f"{prefix}ended_as").isin(
        "released", "lapsed"
    )
    return F.col(f"{prefix}finished").isNotNull() & ~is_back


def _calls(pairs: DataFrame, events: DataFrame) -> DataFrame:
    """Return what the calls for the first attempt say, up to the next receive."""
    firsts = pairs.select(
        "first_dlv", "second_dlv", "next_received", "vt_us", F.col("first.received").alias("begun")
    )
    kinds = [*CALLED, Kind.LEASE_CAPPED.value]
    told = (
        events.where(F.col("ev").isin(kinds))
        .select("ev", "ts", "dlv", "vt", "slack_us", "lat_us", "err")
        .join(F.broadcast(firsts), F.col("dlv") == F.col("first_dlv"))
    )
    planned = F.col("ts") - F.coalesce("lat_us", F.lit(0))
    extended = F.col("ev") == Kind.LEASE_EXTENDED.value
    is_before = F.col("ts") <= F.col("next_received")
    is_good = extended & is_before & (F.col("slack_us") > 0)
    good_at = F.max(F.when(is_good, F.col("ts"))).over(
        Window.partitionBy("first_dlv", "second_dlv")
    )
    since = told.withColumn("good_at", good_at).withColumn(
        "is_bad", (planned >= F.coalesce("good_at", F.lit(0))) & (planned < F.col("next_received"))
    )
    refused = F.col("is_bad") & F.col("err").isin(*_REFUSED)
    unknown = F.col("is_bad") & (F.col("err") == Outcome.UNKNOWN.value)
    slow = F.col("is_bad") & (F.col("lat_us") > F.col("vt_us") * SLOW_PART)
    late = F.col("is_bad") & extended & (F.col("slack_us") <= 0)
    capped = (F.col("ev") == Kind.LEASE_CAPPED.value) & is_before
    good_until = F.max(F.when(is_good, planned + F.col("vt") * _SECOND))
    return since.groupBy("first_dlv", "second_dlv").agg(
        F.max("good_at").alias("good_at"),
        F.coalesce(good_until, F.max(F.col("begun") + F.col("vt_us"))).alias("extended_until"),
        F.max(F.when(refused, F.col("ts"))).alias("refused_at"),
        F.count(F.when(refused, 1)).alias("refusals"),
        F.max(F.when(unknown, F.col("ts"))).alias("unknown_at"),
        F.count(F.when(unknown, 1)).alias("unknowns"),
        F.max(F.when(slow, F.col("lat_us"))).alias("slow_us"),
        F.max(F.when(late, -F.col("slack_us"))).alias("extended_late_us"),
        F.max(F.when(capped, F.col("ts"))).alias("capped_at"),
    )


def _with_late(pairs: DataFrame, events: DataFrame) -> DataFrame:
    """Add `sure_until`, and for how long the first's keeper stood still when that had come."""
    late = events.where(F.col("ev") == KEEPER_LATE)
    of_worker = late.groupBy(F.col("wid").alias("late_wid")).agg(
        F.collect_list(F.struct("ts", "late_us")).alias("lates")
    )
    sure = F.coalesce("extended_until", F.col("first.received") + F.col("vt_us"))

    def is_while_it_ran_out(line: Column) -> Column:
        return (line["ts"] >= F.col("sure_until") - _SECOND) & (
            line["ts"] - line["late_us"] < F.col("next_received")
        )

    stood = F.filter("lates", is_while_it_ran_out)
    return (
        pairs.withColumn("sure_until", sure)
        .join(F.broadcast(of_worker), F.col("first.wid") == F.col("late_wid"), "left")
        .withColumn("late_us", F.array_max(F.transform(stood, lambda line: line["late_us"])))
    )
