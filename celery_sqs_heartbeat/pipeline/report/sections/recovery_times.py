"""The section of the report on recovery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.pipeline.report.figures import moment, number, span, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTimes:
    """The section's content: averages, and the slowest recoveries."""

    sums: Listing
    slowest: Listing


def recovery_times(found: Findings) -> RecoveryTimes | str:
    """Return how long it took until failed and abandoned messages were received again."""
    if not found.recoveries:
        return "No attempt ended before its message was done, so there was nothing to recover."
    return RecoveryTimes(sums=_sums(found), slowest=_slowest(found))


def _sums(found: Findings) -> Listing:
    return listing(
        "Time until the next receive, on average",
        (
            "queue",
            "ended",
            "attempts",
            "dead letters",
            "not received yet",
            "promised",
            "took",
            "longest",
        ),
        [
            (
                text(row["queue"]),
                text(row["ended_as"]),
                number(row["attempts"]),
                number(row["dead_letters"]),
                number(row["censored"]),
                span(row["promised_us"]),
                span(row["recovery_us"]),
                span(row["longest_us"]),
            )
            for row in found.recoveries
        ],
        numbers=6,
    )


def _slowest(found: Findings) -> Listing:
    return listing(
        "Attempts, the furthest beyond the promise first",
        ("ended at", "queue", "task", "message", "ended", "promised", "took", "excess"),
        [
            (
                moment(row["failed"]),
                text(row["queue"]),
                text(row["task"]),
                text(row["msg"]),
                text(row["ended_as"]),
                span(row["promised_us"]),
                _took(row),
                span(None if row["is_censored"] else row["excess_us"]),
            )
            for row in found.slowest
        ],
        numbers=3,
        kinds={"message": "code"},
    )


def _took(row: Mapping[str, Any]) -> str:
    if row["is_dead_letter"]:
        return "dead letter"
    return span(row["recovery_us"]) + (" and more" if row["is_censored"] else "")
