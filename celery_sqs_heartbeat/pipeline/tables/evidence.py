"""What the journals say of the lease of each pair's first execution, for `causes` to judge."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.core.calls import Outcome
from celery_sqs_heartbeat.core.events import EventKind as Kind
from celery_sqs_heartbeat.journal.events import CALLED, KEEPER_LATE
from celery_sqs_heartbeat.pipeline.tables.causes import SLOW_PART
from celery_sqs_heartbeat.pipeline.tables.picking import only
from celery_sqs_heartbeat.pipeline.tables.shaping import us_of

_SECOND = 1_000_000
_REFUSED = (Outcome.THROTTLED.value, Outcome.FAILED.value)

_Test = Callable[[Column], Column]


def with_evidence(pairs: DataFrame, messages: DataFrame, events: DataFrame) -> DataFrame:
    """Add to each pair what became of the calls for its first attempt, up to the next receive.

    Args:
        messages: Those of the pairs, as of `picking.messages_of`.
    """
    judged = (
        pairs.join(_calls(messages, events), "first_dlv", "left")
        .withColumn("good", F.filter("calls", _all(_extends, _is_before, _is_in_time)))
        .withColumn("good_at", _max("good", _ts))
        .withColumn("since", F.filter("calls", _is_since))
        .withColumns(_told())
    )
    return _with_late(judged, events)


def _calls(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Return what the journal tells of the calls for each delivery of the messages."""
    kinds = [*CALLED, Kind.LEASE_CAPPED.value]
    told = F.struct("ev", "ts", "vt", "slack_us", "lat_us", "err")
    of_them = only(messages, events.where(F.col("ev").isin(kinds)))
    return of_them.groupBy(F.col("dlv").alias("first_dlv")).agg(F.collect_list(told).alias("calls"))


def _told() -> dict[str, Column]:
    """Return what the good extensions tell, and the calls since the last of them."""
    good_until = _max("good", lambda call: _planned(call) + us_of(call["vt"]))
    capped = F.filter("calls", _all(_is_cap, _is_before))
    refused = F.filter("since", lambda call: call["err"].isin(*_REFUSED))
    unknown = F.filter("since", lambda call: call["err"] == Outcome.UNKNOWN.value)
    slow = F.filter("since", lambda call: call["lat_us"] > F.col("vt_us") * SLOW_PART)
    late = F.filter("since", lambda call: _extends(call) & (call["slack_us"] <= 0))
    return {
        "sure_until": F.coalesce(good_until, F.col("first.received") + F.col("vt_us")),
        "capped_at": _max(capped, _ts),
        "refused_at": _max(refused, _ts),
        "refusals": F.size(refused),
        "unknown_at": _max(unknown, _ts),
        "unknowns": F.size(unknown),
        "slow_us": _max(slow, lambda call: call["lat_us"]),
        "extended_late_us": _max(late, lambda call: -call["slack_us"]),
    }


def _is_since(call: Column) -> Column:
    """Return whether a call was planned after the last good one, before the next receive."""
    planned = _planned(call)
    return (planned >= F.coalesce("good_at", F.lit(0))) & (planned < F.col("next_received"))


def _is_in_time(call: Column) -> Column:
    return call["slack_us"] > 0


def _is_cap(call: Column) -> Column:
    return call["ev"] == Kind.LEASE_CAPPED.value


def _ts(call: Column) -> Column:
    return call["ts"]


def _planned(call: Column) -> Column:
    return call["ts"] - F.coalesce(call["lat_us"], F.lit(0))


def _extends(call: Column) -> Column:
    return call["ev"] == Kind.LEASE_EXTENDED.value


def _is_before(call: Column) -> Column:
    return call["ts"] <= F.col("next_received")


def _all(*tests: _Test) -> _Test:
    def hold(call: Column) -> Column:
        held = tests[0](call)
        for test in tests[1:]:
            held = held & test(call)
        return held

    return hold


def _max(calls: Column | str, value: Callable[[Column], Column]) -> Column:
    """Return the largest value of the calls; null where there is none."""
    return F.array_max(F.transform(calls, value))


def _with_late(pairs: DataFrame, events: DataFrame) -> DataFrame:
    """Add for how long the first's keeper stood still when its lease ran out."""
    late = events.where(F.col("ev") == KEEPER_LATE)
    of_worker = late.groupBy(F.col("wid").alias("late_wid")).agg(
        F.collect_list(F.struct("ts", "late_us")).alias("lates")
    )

    def is_while_it_ran_out(line: Column) -> Column:
        return (line["ts"] >= F.col("sure_until") - _SECOND) & (
            line["ts"] - line["late_us"] < F.col("next_received")
        )

    stood = F.filter("lates", is_while_it_ran_out)
    return pairs.join(
        F.broadcast(of_worker), F.col("first.wid") == F.col("late_wid"), "left"
    ).withColumn("late_us", F.array_max(F.transform(stood, lambda line: line["late_us"])))
