"""The section of the report on duplicates."""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.charts import Beam
from celery_sqs_heartbeat.pipeline.report.figures import moment, number, span, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing
from celery_sqs_heartbeat.pipeline.report.queries import SHOWN
from celery_sqs_heartbeat.pipeline.report.sections.idle_receives import unseen_receives
from celery_sqs_heartbeat.pipeline.report.sections.overview import NO_STARTS
from celery_sqs_heartbeat.pipeline.tables.root_causes import CAUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatePairs:
    """The section's content: the pairs by cause, and the worst pairs."""

    by_cause: Listing
    summary: str
    pairs: Listing


def duplicate_pairs(found: Findings) -> DuplicatePairs | str:
    """Return the duplicates by cause, and the worst with evidence."""
    if not found.causes:
        return _no_duplicates(found)
    pairs = sum(row["pairs"] for row in found.causes)
    summary = (
        count(pairs, "pair") + " with evidence"
        if pairs <= SHOWN
        else f"The first {SHOWN} of {count(pairs, 'pair')} with evidence"
    )
    return DuplicatePairs(by_cause=_by_cause(found), summary=summary, pairs=_pairs(found))


def _by_cause(found: Findings) -> Listing:
    most = max(row["pairs"] for row in found.causes)
    return listing(
        "Duplicates by root cause",
        ("cause", "meaning", "what to do", "", "pairs", "both succeeded", "overlap"),
        [
            (
                text(row["cause"]),
                CAUSES[row["cause"]].meaning,
                CAUSES[row["cause"]].advice.replace("`", ""),
                Beam(row["pairs"] / most, f"{row['cause']}: {count(row['pairs'], 'pair')}"),
                number(row["pairs"]),
                number(row["both_succeeded"]),
                span(row["overlap_us"]),
            )
            for row in found.causes
        ],
        numbers=3,
        kinds={"cause": "strong", "": "beam"},
    )


def _pairs(found: Findings) -> Listing:
    return listing(
        "Pairs of executions, the longest overlap first",
        ("started again", "queue", "task", "message", "cause", "evidence", "workers", "overlap"),
        [
            (
                moment(row["second_started"]),
                text(row["queue"]),
                text(row["task"]),
                text(row["msg"]),
                text(row["cause"]),
                text(row["evidence"]),
                f"{text(row['first_wid'])} → {text(row['second_wid'])}",
                span(row["overlap_us"]),
            )
            for row in found.duplicates
        ],
        numbers=1,
        kinds={"message": "code"},
    )


def _no_duplicates(found: Findings) -> str:
    """Return the all-clear, with the data that it is based on."""
    seen, workers = found.overview, found.workers
    if not seen["attempts"]:
        return "No message was received, so nothing is known about duplicates."
    if not seen["started"]:
        return NO_STARTS
    has_gaps = workers["missing"] or workers["before"] or found.rejects
    unseen = unseen_receives(found)
    doubts = [
        *(["missing lines may contain duplicates"] if has_gaps else []),
        *([f"{count(unseen, 'receive is', 'receives are')} in no journal"] if unseen else []),
    ]
    return (
        f"No message was executed twice in the journal of {count(seen['workers'], 'worker')}: "
        f"{count(seen['messages'], 'message')}, received {count(seen['attempts'], 'time')}"
        + "".join(f"; {doubt}" for doubt in doubts)
        + "."
    )
