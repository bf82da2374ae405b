"""The root causes of duplicates: an ordered table of rules, each with its evidence.

A rule checks the attempt that had the message first, up to the message's next receive. Its lease is
certain until `sure_until`: one visibility timeout after the last extension that SQS confirmed
before the lease expired.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import KEPT, WORKER_DIED
from celery_sqs_heartbeat.pipeline.tables.failing import call_rules
from celery_sqs_heartbeat.pipeline.tables.rules import TOLERANCE_US, Rule, seconds, text

#: The cause of a release although the task has succeeded.
DELETE_REFUSED = "delete refused"
#: Causes of releases after the end of a task. With any other cause, a started task still ran.
ENDED_RELEASES = ("failed", KEPT, "backoff policy", DELETE_REFUSED, "asked by task", "retried")


def rules() -> tuple[Rule, ...]:
    """Return the rules in order. They need an active session."""
    again, sure = F.col("next_received"), F.col("sure_until")
    has_no_end = F.col("first.ended_as") == "abandoned"
    # A worker that wrote lines after that was not dead.
    is_gone = has_no_end & F.coalesce(F.col("first_last_seen") < again + TOLERANCE_US, F.lit(True))
    had_ended = F.col("first.ended").isNotNull() & F.col("first.ended_as").isin(
        "deleted", "released", "lapsed"
    )
    ended_before = had_ended & (F.col("first.ended") < again + TOLERANCE_US)
    early = (again < sure - TOLERANCE_US) & ~(ended_before & (F.col("first.ended_as") != "deleted"))
    is_lost = F.col("lost_until") > F.col("first.last_event")
    lost = text("lines of its worker %s are missing from that time", F.col("first.wid"))
    was_kept = F.coalesce(F.col("first.cause") == WORKER_DIED, F.lit(False)) & ended_before
    return (
        Rule(
            "died-while-running",
            was_kept,
            text(
                "worker %s died, and its keeper released the message %.1f s before the next "
                "receive",
                F.col("first.wid"),
                seconds(again - F.col("first.ended")),
            ),
        ),
        Rule(
            "released-while-running",
            was_released_while_running("first") & ended_before,
            text("released (%s) while its task ran", F.col("first.cause")),
        ),
        Rule(
            "delete-refused",
            F.coalesce(F.col("first.cause") == DELETE_REFUSED, F.lit(False)) & ended_before,
            text(
                "SQS refused its delete %.1f s before the next receive",
                seconds(again - F.col("first.ended")),
            ),
        ),
        Rule(
            "lines-lost",
            is_lost & (early | (has_no_end & F.col("first.finished").isNotNull())),
            lost,
        ),
        Rule(
            "second-delivery",
            early,
            text("received again %.1f s before the lease could end", seconds(sure - again)),
        ),
        Rule(
            "died-after-success",
            is_gone & F.col("first.finished").isNotNull(),
            text(
                "its task had ended, its delete was not confirmed, then its worker %s was silent; "
                "received again %.1f s after that",
                F.col("first.wid"),
                seconds(again - F.col("first.last_event")),
            ),
        ),
        Rule(
            "capped",
            # The last extension may report at once that it is the last.
            F.col("capped_at") >= F.coalesce("good_at", F.lit(0)),
            text(
                "not extended any more from %.1f s before the next receive",
                seconds(again - F.col("capped_at")),
            ),
        ),
        Rule(
            "keeper-starved",
            F.col("late_us").isNotNull(),
            text("the keeper was delayed by %.1f s", seconds(F.col("late_us"))),
        ),
        *call_rules(again),
        Rule("lines-lost", is_lost & has_no_end, lost),
        Rule(
            "died-while-running",
            is_gone,
            text(
                "its worker %s was silent from %.1f s before the next receive on",
                F.col("first.wid"),
                seconds(again - F.col("first.last_event")),
            ),
        ),
        Rule(
            "keeper-starved",
            F.col("extended_late_us") > 0,
            text(
                "extended %.1f s too late, although calls were fast",
                seconds(F.col("extended_late_us")),
            ),
        ),
        Rule(
            "opted-out",
            F.col("is_opted_out")
            & F.col("good_at").isNull()
            & (F.coalesce("tries", F.lit(0)) == 0),
            text(
                "its task has sqs_heartbeat=False: its timeout of %d s ended, and was not extended",
                F.col("first.vt"),
            ),
        ),
        Rule("lines-lost", F.col("lost_until").isNotNull(), lost),
        Rule("unknown", F.lit(True), F.lit("nothing in the journals shows why")),
    )


def was_released_while_running(attempt: str) -> Column:
    """Return whether an attempt was released although its task had started."""
    return (
        F.col(f"{attempt}.started").isNotNull()
        & F.col(f"{attempt}.ended_as").isin("released", "lapsed")
        & ~F.coalesce(F.col(f"{attempt}.cause").isin(*ENDED_RELEASES), F.lit(False))
    )
