"""The report's last section: lines that are missing from the journal."""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.figures import number, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLines:
    """The section's content: gaps in words, and lines and segments that could not be read."""

    gaps: str
    unread: Listing


def missing_lines(found: Findings) -> MissingLines | str:
    """Return the parts of the journal that could not be read."""
    gaps = _gaps(found)
    if not found.rejects:
        read = "Every line could be read." if found.workers["starts"] else "There are no lines."
        return f"{read} {gaps}"
    unread = listing(
        "What could not be read",
        ("file", "reason", "lines"),
        [(text(row["file"]), text(row["reason"]), number(row["lines"])) for row in found.rejects],
        numbers=1,
        kinds={"file": "code"},
    )
    return MissingLines(gaps=gaps, unread=unread)


def _gaps(found: Findings) -> str:
    missing = found.workers["missing"] or 0
    gaps = "The workers' line numbers have no gaps."
    if missing:
        gaps = (
            f"Gaps in the workers' line numbers show that {count(missing, 'line')} of the journal "
            f"{'is' if missing == 1 else 'are'} missing: the figures do not include "
            f"{'it' if missing == 1 else 'them'}."
        )
    unfinished = (found.workers["starts"] or 0) - (found.workers["stopped"] or 0)
    if unfinished:
        gaps += (
            f" {count(unfinished, 'worker has', 'workers have')} no last line: still running, "
            "or killed."
        )
    return gaps
