"""The section of the report on recovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    folded,
    join,
    moment,
    note,
    number,
    span,
    table,
    text,
)


def recoveries(found: Findings) -> Html:
    """Return how long failed and abandoned messages took to come back."""
    if not found.recoveries:
        return note("No attempt ended without its message done: there was nothing to recover.")
    sums = table(
        "Until the next receive, on average",
        (
            "queue",
            "ended",
            "attempts",
            "dead letters",
            "not back yet",
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
    slowest = table(
        "Attempts, the furthest behind the promise first",
        ("ended at", "queue", "task", "message", "ended", "promised", "took", "excess"),
        [
            (
                moment(row["failed"]),
                text(row["queue"]),
                text(row["task"]),
                f"<code>{text(row['msg'])}</code>",
                text(row["ended_as"]),
                span(row["promised_us"]),
                _took(row),
                span(None if row["is_censored"] else row["excess_us"]),
            )
            for row in found.slowest
        ],
        numbers=3,
    )
    words = (
        "From an attempt's end to its message's next receive, against what the settings promise: "
        "the release delay, or what was left of the lease. A killed worker's attempt ends with its "
        "last event, so earlier than the kill. A full queue adds the wait in it; where no worker "
        "runs, the time until the next one does is added. Below zero: another worker had received "
        "the message before this one knew that it was lost. A dead letter was received as often as "
        "its queue allows: SQS moves it to the dead-letter queue."
    )
    return join((note(words), sums, folded("The slowest ones", slowest)))


def _took(row: Mapping[str, Any]) -> Html:
    if row["is_dead_letter"]:
        return Html("dead letter")
    return Html(span(row["recovery_us"]) + (" and more" if row["is_censored"] else ""))
