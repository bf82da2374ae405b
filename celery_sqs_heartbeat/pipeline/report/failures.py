"""The section of the report on duplicates."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.report.charts import beam
from celery_sqs_heartbeat.pipeline.report.findings import Findings
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
from celery_sqs_heartbeat.pipeline.tables.root_causes import CAUSES


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
                text(CAUSES[row["cause"]].advice.replace("`", "")),
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
