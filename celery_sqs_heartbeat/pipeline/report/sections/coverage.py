"""The first line of the report: the data that it covers, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from celery_sqs_heartbeat.common.days import Days, Span, stretches
from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.queries import SHOWN, Rows

#: The reason of whole rejected segments, rather than lines; see `rejects`.
_TORN = "torn segment"
#: Gaps between days that are listed.
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The data that the report was made from.

    Attributes:
        span: The requested days.
        segments: Number of a journal's segments; None for a warehouse, which does not record it.
    """

    span: Span
    segments: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The line's content: the data that the page covers, and its gaps."""

    head: str
    gaps: Sequence[str]


def covered(found: Findings, coverage: Coverage) -> Covered:
    """Return what the report covers."""
    days = _days(found, coverage.span)
    source = (
        "tables of a warehouse"
        if coverage.segments is None
        else count(coverage.segments, "segment") + " of their journal"
    )
    when = ""
    if days:
        length = (days.last - days.first).days + 1
        of_all = "" if len(found.days) == length else f" of {length:,}"
        when = (
            f", {len(found.days):,}{of_all} {'day' if length == 1 else 'days'} with events: "
            f"{days.first} to {days.last} (UTC)"
        )
    return Covered(
        head=f"Covers {count(found.workers['starts'] or 0, 'worker')}, {source}{when}. "
        "A restarted worker counts as one more.",
        gaps=list(_gaps(found, days)),
    )


def _days(found: Findings, span: Span) -> Days | None:
    """Return the requested days, limited by the days that were found."""
    if not found.days:
        return None
    return Days(span.first or found.days[0], span.last or found.days[-1])


def _gaps(found: Findings, days: Days | None) -> Iterator[str]:
    if days and (lacking := _without(found.days, days)):
        shown = [_stretch(each) for each in lacking[:_SHOWN]]
        if more := len(lacking) - len(shown):
            shown.append(count(more, "more stretch", "more stretches"))
        yield f"no events on {', '.join(shown)}"
    if before := found.workers["before"]:
        yield f"{count(before, 'line')} missing before the first line that was read of a worker"
    if missing := found.workers["missing"]:
        yield f"{count(missing, 'line')} missing from the workers' numbering"
    if found.rejects:
        least = "at least " if len(found.rejects) == SHOWN else ""
        yield f"{least}{_unread(found.rejects)} that can't be read"


def _unread(rejects: Rows) -> str:
    torn = sum(row["lines"] for row in rejects if row["reason"] == _TORN)
    lines = sum(row["lines"] for row in rejects) - torn
    counts = ((lines, "line"), (torn, _TORN))
    return " and ".join(count(number, noun) for number, noun in counts if number)


def _without(found: Sequence[date], days: Days) -> Sequence[Days]:
    return stretches(set(days) - set(found))


def _stretch(days: Days) -> str:
    return str(days.first) if days.first == days.last else f"{days.first} to {days.last}"
