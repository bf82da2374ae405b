"""The causes of duplicates that lie in the calls since the last extension, by what came of them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.tables.rules import Rule, counted, seconds, text

#: A call that takes this part of the visibility timeout is slow: half of the threshold that
#: leases have by default.
SLOW_PART = 1 / 6


def call_rules(again: Column) -> tuple[Rule, ...]:
    """Return the rules in their order. Of failures, the last counts.

    Args:
        again: When the message was received again.
    """
    failed_at = F.greatest("error_at", "unanswered_at", F.lit(0))
    return (
        Rule(
            "not-permitted",
            F.greatest("refused_at", "denied_at") > failed_at,
            F.concat(
                text(
                    "SQS refused %s to extend it, as not permitted",
                    counted(F.coalesce("refused", F.lit(0)), "call"),
                ),
                F.when(
                    F.col("denied_at").isNotNull(),
                    text(
                        "; its worker was refused them for the whole queue, from %.1f s before on",
                        seconds(again - F.col("denied_at")),
                    ),
                ).otherwise(""),
            ),
        ),
        Rule(
            "network",
            F.col("unanswered_at") > F.coalesce("error_at", F.lit(0)),
            text(
                "SQS did not answer %s since the last extension",
                counted(F.col("unanswered"), "call"),
            ),
        ),
        Rule(
            "sqs-errors",
            F.col("error_at").isNotNull(),
            text(
                "SQS answered %s with errors since the last extension, %d of them throttled",
                counted(F.col("errors"), "call"),
                F.col("throttled"),
            ),
        ),
        Rule(
            "sqs-slow",
            F.col("slow_us").isNotNull(),
            text("a call took %.1f s", seconds(F.col("slow_us"))),
        ),
    )
