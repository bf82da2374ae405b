"""The root causes of duplicates: an ordered table of rules, each with its evidence.

A rule looks at the attempt that had the message first, up to the next receive of it. Its
lease is certain until `sure_until`: the visibility timeout after the last extension that SQS
confirmed while the lease before it had not run out.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

_SECOND = 1_000_000
#: What clocks and the way of an answer leave open, in microseconds.
TOLERANCE_US = _SECOND
#: A call that takes this part of the visibility timeout is slow: half of the threshold that
#: leases have by default.
SLOW_PART = 1 / 6
#: Why a message is back though its task has ended well.
DELETE_REFUSED = "delete refused"
#: Releases that mean that the task has ended. Under any other, what had started goes on.
ENDED_RELEASES = ("failed", "backoff policy", DELETE_REFUSED)


@dataclass(frozen=True, slots=True)
class Rule:
    """A cause holds where its condition does, and none before it."""

    cause: str
    condition: Column
    evidence: Column


def rules() -> tuple[Rule, ...]:
    """Return the rules in their order; they need an active session."""
    again, sure = F.col("next_received"), F.col("sure_until")
    is_gone = F.col("first.ended_as") == "abandoned"
    had_ended = F.col("first.ended").isNotNull() & F.col("first.ended_as").isin(
        "deleted", "released", "lapsed"
    )
    ended_before = had_ended & (F.col("first.ended") < again + TOLERANCE_US)
    early = again < sure - TOLERANCE_US
    return (
        Rule(
            "no-heartbeat",
            F.col("has_gap"),
            _text("receive %d of the message is in no journal", F.col("next_rc") - 1),
        ),
        Rule(
            "released-while-running",
            was_released_while_running("first") & ended_before,
            _text("released (%s) while its task ran", F.col("first.cause")),
        ),
        Rule(
            "delete-refused",
            F.coalesce(F.col("first.cause") == DELETE_REFUSED, F.lit(False)) & ended_before,
            _text("SQS refused its delete %.1f s before", _s(again - F.col("first.ended"))),
        ),
        Rule(
            "second-delivery",
            early & ~(ended_before & (F.col("first.ended_as") != "deleted")),
            _text("received again %.1f s before the lease could end", _s(sure - again)),
        ),
        Rule(
            "died-after-success",
            is_gone & F.col("first.finished").isNotNull(),
            _text(
                "its task had ended, its delete was not confirmed, then its worker was silent; "
                "received again %.1f s after that",
                _s(again - F.col("first.last_event")),
            ),
        ),
        Rule(
            "capped",
            F.col("capped_at") > F.coalesce("good_at", F.lit(0)),
            _text("not extended any more %.1f s before", _s(again - F.col("capped_at"))),
        ),
        Rule(
            "keeper-starved",
            F.col("late_us").isNotNull(),
            _text("the keeper stood still for %.1f s", _s(F.col("late_us"))),
        ),
        Rule(
            "network",
            F.col("unanswered_at") > F.coalesce("error_at", F.lit(0)),
            _text("SQS did not answer %d calls since the last extension", F.col("unanswered")),
        ),
        Rule(
            "sqs-errors",
            F.col("error_at").isNotNull(),
            _text(
                "SQS answered %d calls with errors since the last extension, %d of them throttled",
                F.col("errors"),
                F.col("throttled"),
            ),
        ),
        Rule(
            "sqs-slow",
            F.col("slow_us").isNotNull(),
            _text("a call took %.1f s", _s(F.col("slow_us"))),
        ),
        Rule(
            "died-while-running",
            is_gone,
            _text(
                "its worker was silent from %.1f s before the next receive on",
                _s(again - F.col("first.last_event")),
            ),
        ),
        Rule(
            "keeper-starved",
            F.col("extended_late_us") > 0,
            _text("extended %.1f s too late, by quick calls", _s(F.col("extended_late_us"))),
        ),
        Rule("unknown", F.lit(True), F.lit("nothing in the journals tells why")),
    )


def was_released_while_running(attempt: str) -> Column:
    """Return whether an attempt was given back under a task that had started."""
    return (
        F.col(f"{attempt}.started").isNotNull()
        & F.col(f"{attempt}.ended_as").isin("released", "lapsed")
        & ~F.coalesce(F.col(f"{attempt}.cause").isin(*ENDED_RELEASES), F.lit(False))
    )


def first_that_holds(ordered: tuple[Rule, ...]) -> Column:
    """Return `cause` and `evidence` of the first rule that holds, as one struct.

    As two columns each condition would be there twice, and the plan be as much larger.
    """
    *others, last = ordered
    chosen = _told(last)
    for rule in reversed(others):
        chosen = F.when(rule.condition, _told(rule)).otherwise(chosen)
    return chosen


def _told(rule: Rule) -> Column:
    return F.struct(F.lit(rule.cause).alias("cause"), rule.evidence.alias("evidence"))


def _text(template: str, *values: Column) -> Column:
    return F.format_string(template, *values)


def _s(span: Column) -> Column:
    return span / _SECOND
