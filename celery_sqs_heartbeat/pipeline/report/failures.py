"""The sections of the report on duplicates and on recovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.pipeline.causes import CAUSES
from celery_sqs_heartbeat.pipeline.report.charts import beam
from celery_sqs_heartbeat.pipeline.report.data import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    folded,
    join,
    moment,
    note,
    number,
    plural,
    span,
    table,
    text,
)
from celery_sqs_heartbeat.pipeline.report.queries import SHOWN


def duplicates(found: Findings) -> Html:
    """Return the duplicates by cause, and the worst of them with the evidence."""
    if not found.causes:
        return note(_no_duplicates(found))
    most = max(row["pairs"] for row in found.causes)
    by_cause = table(
        "Duplicates by root cause",
        ("cause", "which means", "what to do", "", "pairs", "both succeeded", "overlap"),
        [
            (
                f"<strong>{text(row['cause'])}</strong>",
                text(CAUSES[row["cause"]].meaning),
                text(CAUSES[row["cause"]].advice),
                beam(
                    row["pairs"] / most,
                    label=f"{text(row['cause'])}: {plural(row['pairs'], 'pair')}",
                ),
                number(row["pairs"]),
                number(row["both_succeeded"]),
                span(row["overlap_us"]),
            )
            for row in found.causes
        ],
        numbers=3,
    )
    pairs = sum(row["pairs"] for row in found.causes)
    shown = table(
        "Pairs of executions, the longest overlap first",
        ("started again", "queue", "task", "message", "cause", "evidence", "workers", "overlap"),
        [
            (
                moment(row["second_started"]),
                text(row["queue"]),
                text(row["task"]),
                f"<code>{text(row['msg'])}</code>",
                text(row["cause"]),
                text(row["evidence"]),
                f"{text(row['first_wid'])} → {text(row['second_wid'])}",
                span(row["overlap_us"]),
            )
            for row in found.duplicates
        ],
        numbers=1,
    )
    summary = (
        plural(pairs, "pair") + " with evidence"
        if pairs <= SHOWN
        else f"The first {SHOWN} of {plural(pairs, 'pair')} with evidence"
    )
    return join((by_cause, folded(summary, shown)))


def _no_duplicates(found: Findings) -> Html:
    """Return the all-clear, with what it is based on."""
    seen, workers = found.overview, found.workers
    if not seen["attempts"]:
        return Html("No message was received: nothing can be said about duplicates.")
    has_gaps = workers["missing"] or workers["before"] or found.rejects
    return Html(
        f"No message was executed twice, by what was read of {plural(seen['workers'], 'worker')}: "
        f"{plural(seen['messages'], 'message')}, received {plural(seen['attempts'], 'time')}"
        + ("; what the missing lines would say is unknown." if has_gaps else ".")
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
                span(row["excess_us"]),
            )
            for row in found.slowest
        ],
        numbers=3,
    )
    words = (
        "From an attempt's end to its message's next receive, against what the settings promise: "
        "the release delay, or what was left of the lease. A full queue adds the wait in it. Below "
        "zero: another worker had received the message before this one knew that it was lost. A "
        "dead letter was received as often as its queue allows: SQS moves it to the dead-letter "
        "queue."
    )
    return join((note(words), sums, folded("The slowest ones", slowest)))


def _took(row: Mapping[str, Any]) -> Html:
    if row["is_dead_letter"]:
        return Html("dead letter")
    return Html(span(row["recovery_us"]) + (" and more" if row["is_censored"] else ""))
