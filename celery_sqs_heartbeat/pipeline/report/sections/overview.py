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
    "deleted": "done, its message deleted",
    "released": "given back",
    "parked": "left to SQS until its task was due",
    "lapsed": "left to become visible by itself",
    "lost": "lost: SQS said that it was not ours any more",
    "capped": "kept for as long as may be, then let go",
    "continued": "received again by the same worker, which went on",
    "abandoned": "no event tells of its end: its worker died",
    "running": "its task still ran at the end of the journal",
    "waiting": "received, and its task had not started at the end of the journal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the section shows.

    Attributes:
        lasted: From the first event to the last, `begin` to `end`.
        received: Who received how many messages, and from where.
        repeated: What was executed twice.
        figures: Each with its name.
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
        return "No message was received in these days, as far as the journal tells."
    pairs = sum(row["pairs"] for row in found.causes)
    return Overview(
        lasted=span(seen["end"] - seen["begin"]),
        begin=moment(seen["begin"]),
        end=moment(seen["end"]),
        received=f"{count(seen['workers'], 'worker')} received "
        f"{count(seen['messages'], 'message')} {count(attempts, 'time')}, from "
        f"{count(seen['queues'], 'queue')} for {count(seen['tasks'], 'task')}.",
        repeated=_repeated(pairs),
        figures=(
            ("Messages", number(seen["messages"])),
            ("Attempts", number(attempts)),
            ("Workers that received something", number(seen["workers"])),
            ("Duplicates", number(pairs)),
            ("Extensions", number(seen["extensions"])),
            ("Failed extensions", number(seen["failures"])),
            ("Keeper late", number(found.workers["late_count"] or 0)),
        ),
        ends=_ends(found, attempts),
    )


def _ends(found: Findings, attempts: int) -> Listing:
    return listing(
        "How attempts ended",
        ("ended", "which means", "attempts", "share"),
        [
            (
                text(row["ended_as"]),
                _ENDS.get(row["ended_as"], ""),
                number(row["attempts"]),
                f"{row['attempts'] / attempts:.1%}",
            )
            for row in sorted(found.ends, key=lambda row: -row["attempts"])
        ],
        numbers=2,
    )


def _repeated(pairs: int) -> str:
    if not pairs:
        return "None of them was executed twice."
    if pairs == 1:
        return "1 execution is a duplicate: it began although the one before had not failed."
    return (
        f"{pairs:,} executions are duplicates: they began although the one before had not failed."
    )
