"""The report's first section: what happened, in words and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.figures import moment, number, span, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing

#: How an attempt ended, for people.
_ENDS = {
    "deleted": "done, and its message deleted",
    "released": "made visible again",
    "parked": "left to SQS until its task was due",
    "lapsed": "left until its visibility timeout ended",
    "lost": "lost: SQS reported that the message was no longer ours",
    "capped": "held for the longest time allowed, then no longer extended",
    "continued": "received again by the same worker, which continued with it",
    "abandoned": "without an end in the journal: its worker died",
    "running": "its task still ran at the end of the journal",
    "waiting": "received, and its task had not started at the end of the journal",
}


#: Shown instead of duplicates if no worker records starts, as a consumer without Celery may not.
NO_STARTS = "The journal records no start of a task, so nothing is known about duplicates."


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The section's content.

    Attributes:
        lasted: Time from the first event to the last, `begin` to `end`.
        received: Numbers of workers, messages, queues and tasks, in words.
        repeated: Number of duplicates, in words.
        figures: Figures with their names.
    """

    lasted: str
    begin: str
    end: str
    received: str
    repeated: str
    figures: Sequence[tuple[str, str]]
    ends: Listing


def overview(found: Findings) -> Overview | str:
    """Return what happened."""
    seen = found.overview
    attempts = seen["attempts"]
    if not attempts:
        return "The journal shows no received message on these days."
    pairs = sum(row["pairs"] for row in found.causes)
    return Overview(
        lasted=span(seen["end"] - seen["begin"]),
        begin=moment(seen["begin"]),
        end=moment(seen["end"]),
        received=f"{count(seen['workers'], 'worker')} received "
        f"{count(seen['messages'], 'message')} {count(attempts, 'time')}, from "
        f"{count(seen['queues'], 'queue')} for {count(seen['tasks'], 'task')}.",
        repeated=_repeated(pairs) if seen["started"] else NO_STARTS,
        figures=(
            ("Messages", number(seen["messages"])),
            ("Attempts", number(attempts)),
            ("Workers that received something", number(seen["workers"])),
            ("Duplicates", number(pairs)),
            ("Receives without an execution", number(_idle(found))),
            ("Extensions", number(seen["extensions"])),
            ("Failed extensions", number(seen["failures"])),
            ("Keeper late", number(found.workers["late_count"] or 0)),
        ),
        ends=_ends(found, attempts),
    )


def _ends(found: Findings, attempts: int) -> Listing:
    return listing(
        "How attempts ended",
        ("ended", "meaning", "attempts", "share"),
        [
            (
                text(row["ended_as"]),
                _ENDS.get(row["ended_as"], ""),
                number(row["attempts"]),
                f"{row['attempts'] / attempts:.1%}",
            )
            for row in sorted(found.ends, key=lambda row: (-row["attempts"], row["ended_as"]))
        ],
        numbers=2,
    )


def _idle(found: Findings) -> int:
    return sum(row["receives"] for row in found.receives if row["why"] is not None)


def _repeated(pairs: int) -> str:
    if not pairs:
        return "None of them was executed twice."
    if pairs == 1:
        return "1 execution is a duplicate: it began although the one before had not failed."
    return (
        f"{pairs:,} executions are duplicates: they began although the one before had not failed."
    )
