"""The causes of duplicates in the calls since the last extension, by their outcomes."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.tables.rules import Rule, counted, seconds, text

#: A call that takes this part of the visibility timeout is slow. It is half of the default
#: threshold.
SLOW_PART = 1 / 6


def call_rules(again: Column) -> tuple[Rule, ...]:
    """Return the rules in order. The last failure counts.

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
                    "SQS refused %s to extend it: not permitted",
                    counted(F.coalesce("refused", F.lit(0)), "call"),
                ),
                F.when(
                    F.col("denied_at").isNotNull(),
                    text(
                        "; it refused them for the whole queue from %.1f s before the next receive",
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
