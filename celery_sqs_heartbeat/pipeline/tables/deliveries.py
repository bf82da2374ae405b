"""Folds the events of each delivery into one row, with numbers only.

An aggregate of strings can't be hashed, and doubles the time. Strings that all events of a delivery
share are in the group's key. If the last string counts, it is encoded as a number below the line's
number.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import (
    ARRIVED_LATE,
    DUE_LATER,
    KEPT,
    SENT_AGAIN,
    UNDELIVERABLE,
    UNSETTLED,
    WORKER_DIED,
)
from celery_sqs_heartbeat.leases.events import EventKind as Kind
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG

#: A later delivery of a message that still runs has its own id, and so have its events.
KEY = ("queue", "msg", "dlv", "wid", "task", "task_id")

#: The causes for which the package gives messages back, or replaces them. Any other cause becomes
#: `other`.
GIVEN_BACK = (
    "other",
    "failed",
    "backoff policy",
    "cancelled",
    "shutdown",
    "consumer closed",
    "not delivered",
    "delete refused",
    WORKER_DIED,
    DUE_LATER,
    GROUP_STOPPED,
    "asked by task",
    "retried",
    NO_ROOM,
    WAITED_LONG,
    KEPT,
    ARRIVED_LATE,
    UNDELIVERABLE,
    UNSETTLED,
    SENT_AGAIN,
)
RECEIVED_AS = ("new", "redelivered", "finished")
ENDED_AS = ("deleted", "released", "lapsed")

_ERRORS = ("other", *(outcome.value for outcome in Outcome))
#: More than any code, and than any visibility timeout in seconds.
_CODES = 1 << 16


def deliveries_of(events: DataFrame) -> DataFrame:
    """Return a row for each receive, with everything that its own events show."""
    ts = F.col("ts")
    received, extended = _is(Kind.MESSAGE_RECEIVED), _is(Kind.LEASE_EXTENDED)
    deleted, released = _is(Kind.MESSAGE_DELETED), _is(Kind.MESSAGE_RELEASED)
    lapsed = _is(Kind.MESSAGE_LAPSING, Kind.DELETE_ABANDONED)
    end = F.when(deleted, 0).when(released, 1).when(lapsed, 2)
    given_back = _code(F.col("cause"), GIVEN_BACK)
    has_cause = released | lapsed | (deleted & (F.col("cause") == SENT_AGAIN))
    folded = (
        events.where(F.col("msg").isNotNull() & F.col("dlv").isNotNull())
        .groupBy(*KEY)
        .agg(
            F.max("rc").alias("rc"),
            F.max("max_rc").alias("max_rc"),
            F.max(F.when(received, _code(F.col("cause"), RECEIVED_AS))).alias("received_code"),
            F.max("sent").alias("sent"),
            F.max("first").alias("first"),
            F.min(F.when(received, ts)).alias("arrived"),
            F.min(ts - F.coalesce("held_us", F.lit(0))).alias("asked"),
            F.min(F.when(_is(Kind.TASK_STARTED), ts)).alias("started"),
            F.max(ts - F.col("ended_us")).alias("finished"),
            F.max(F.when(end.isNotNull(), ts)).alias("ended"),
            F.max(ts).alias("last_event"),
            _last(end).alias("end_code"),
            _last(F.when(has_cause, given_back)).alias("cause_code"),
            F.max(F.when(received, F.col("vt"))).alias("vt"),
            _last(F.when(released, F.coalesce("vt", F.lit(0))).otherwise(F.col("vt"))).alias(
                "last_vt"
            ),
            F.max(F.when(extended, ts)).alias("last_extended"),
            F.count(F.when(extended, 1)).alias("extensions"),
            F.count(F.when(_is(Kind.EXTENSION_FAILED), 1)).alias("failures"),
            F.min(F.when(_is(Kind.LEASE_EXPIRED), ts)).alias("expired"),
            F.min(F.when(_is(Kind.LEASE_LOST), ts)).alias("lost"),
            F.min(F.when(_is(Kind.LEASE_CAPPED), ts)).alias("capped"),
            F.min(F.when(extended, F.col("slack_us"))).alias("min_slack_us"),
            F.max("lat_us").alias("max_latency_us"),
            _last(_code(F.col("err"), _ERRORS)).alias("error_code"),
        )
    )
    return folded.withColumns(
        {
            "received": F.coalesce("arrived", "asked"),
            "received_as": _text("received_code", RECEIVED_AS),
            "end": _text("end_code", ENDED_AS),
            "cause": _text("cause_code", GIVEN_BACK),
            "last_error": _text("error_code", _ERRORS),
        }
    )


def _is(*kinds: Kind) -> Column:
    return F.col("ev").isin(*(kind.value for kind in kinds))


def _last(code: Column) -> Column:
    """Return the aggregate with the code of the last line that has one."""
    return F.max(F.col("seq") * _CODES + code) % _CODES


def _code(text: Column, texts: Sequence[str]) -> Column:
    """Return the index of a text in texts: 0 for an unknown one, null for none.

    It uses comparisons, because not every engine builds a map of constants only once for all rows.
    """
    place = F.when(text.isNull(), None)
    for code, each in enumerate(texts):
        place = place.when(text == each, code)
    return place.otherwise(0)


def _text(code: str, texts: Sequence[str]) -> Column:
    return F.get(F.array(*map(F.lit, texts)), F.col(code).cast("int"))
