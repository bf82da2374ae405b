"""Makes the report of a journal, or of existing tables, as one HTML file.

The template has the sections with their words. Everything from a journal stays text until the
template escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from celery_sqs_heartbeat.common.days import Days, Span, stretches
from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.leases.events import (
    ARRIVED_LATE,
    DUE_LATER,
    SENT_AGAIN,
    UNDELIVERABLE,
    UNSETTLED,
    WORKER_DIED,
)
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from celery_sqs_heartbeat.pipeline import phrases
from celery_sqs_heartbeat.pipeline.faults import progress_line
from celery_sqs_heartbeat.pipeline.jobs import opened
from celery_sqs_heartbeat.pipeline.phrases import count, text
from celery_sqs_heartbeat.pipeline.report import plots
from celery_sqs_heartbeat.pipeline.report.queries import (
    IN_NO_JOURNAL,
    QUEUES,
    SHOWN,
    Found,
    Rows,
    collect,
)
from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.spark import new_session
from celery_sqs_heartbeat.pipeline.tables.duplicates import CAUSES

#: The reason of whole rejected segments, rather than lines; see `rejects`.
_TORN = "torn segment"
#: Gaps between days that are listed.
_STRETCHES = 5
#: A part of a call below this is a rounding error.
_TINY = 1e-6

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
#: Why no task started, for people: a release's cause as in the journal, or the attempt's end.
_MEANINGS: Mapping[str, str] = {
    IN_NO_JOURNAL: "SQS counted a receive that no journal has. The message went into a poll that "
    "was open when its worker died, or to a worker without a journal, or the lines are lost. "
    "Whether a task ran is not known",
    WORKER_DIED: "its worker died before the task started, and its keeper released the message",
    "abandoned": "its worker and its keeper died before the task started",
    "shutdown": "its worker was stopped before the task started",
    "consumer closed": "its worker lost its connection before the task started",
    "not delivered": "its worker was stopped or lost its connection while it received the message",
    "cancelled": "it was cancelled before it started",
    "failed": "Celery rejected the message before a task started",
    GROUP_STOPPED: "a message ahead of it in its group failed",
    NO_ROOM: "too many messages already waited behind others of their group",
    WAITED_LONG: "the message ahead of it in its group took too long",
    DUE_LATER: "its task is due later, so it was left to SQS until then",
    SENT_AGAIN: "it was received for the last time and could not start, so a copy was sent",
    ARRIVED_LATE: "too little of its lease was left when it arrived",
    UNDELIVERABLE: "Celery could not make a task of it",
    UNSETTLED: "nothing would have acked or rejected it",
    "finished": "its task had already ended, and only the delete was missing",
    "redelivered": "its task still ran in the same worker, which continued with it",
    "continued": "the same worker received it again before the task started",
    "lost": "SQS reported that it was no longer ours before the task started",
    "capped": "it waited for the longest time that a lease may last",
    "deleted": "acked without a start: revoked, expired, or by a consumer that records no starts",
}


def page_of(source: str, span: Span, *, is_journal: bool | None = None) -> tuple[str, str]:
    """Return the page for these days, and what could not be read, in words.

    A journal's tables are temporary.

    Args:
        source: A journal or a warehouse.
        is_journal: As for `opened`.

    Raises:
        PipelineError: The source is neither, or Spark can't run.
        FetchError: The source is on S3, and can't be copied.
        NothingFound: There are no messages of these days.
    """
    progress = progress_line()
    progress("starting Spark")
    spark = new_session("sqs-heartbeat report")
    with opened(spark, source, span, is_journal=is_journal, progress=progress) as (
        tables,
        segments,
    ):
        if segments == 0:
            raise NothingFound(f"the journal {source!r} has no segments {span}".rstrip())
        found = collect(tables, span, progress)
        unread = tables.unread_in(span, source)
    _refuse_nothing(source, span, found)
    return render(found, span, segments), unread


def render(found: Found, span: Span = Span(), segments: int | None = None) -> str:  # noqa: B008
    """Return the page. It loads nothing and runs no script, and tells the browser so.

    Args:
        span: The requested days.
        segments: Number of a journal's segments; None for a warehouse, which does not record it.
    """
    environment = Environment(
        loader=PackageLoader("celery_sqs_heartbeat.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    functions = {name: each for name, each in vars(phrases).items() if callable(each)}
    environment.globals.update(functions, **_NAMES)
    environment.filters["whole"] = _whole
    seen = [row[PARTITION] for row in found["days"]]
    days = Days(span.first or seen[0], span.last or seen[-1]) if seen else None
    return environment.get_template("page.html.j2").render(
        found=found,
        days=days,
        days_seen=len(seen),
        segments=segments,
        gaps=list(_gaps(found, set(seen), days)),
        durations=list(plots.durations_of(found["durations"])),
        in_flight=list(plots.in_flight_of(found["in_flight"])),
        advice=list(plots.advice_of(found["recommendations"])),
    )


def _shown(value: object) -> str:
    """Return the text for a value, before it is escaped as HTML.

    Control characters are not allowed in HTML, lone surrogates can't be encoded, and characters
    that change the text's direction could make a name look like another one.
    """
    # The result of a macro is escaped already.
    return value if isinstance(value, Markup) else escaped(text(value))


def _refuse_nothing(source: str, span: Span, found: Found) -> None:
    if found["overview"][0]["attempts"]:
        return
    rejected = sum(row["lines"] for row in found["rejects"])
    unread = f"; {count(rejected, 'line')} could not be read" if rejected else ""
    days = f" {span}" if str(span) else ""
    raise NothingFound(
        f"{source!r} has no message that was received{days}: there is nothing to report{unread}"
    )


def _gaps(found: Found, seen: set[date], days: Days | None) -> Iterator[str]:
    """Yield the gaps in what the report covers."""
    if days and (lacking := stretches(set(days) - seen)):
        shown = [_stretch(each) for each in lacking[:_STRETCHES]]
        if more := len(lacking) - len(shown):
            shown.append(count(more, "more stretch", "more stretches"))
        yield f"no events on {', '.join(shown)}"
    if before := found["workers"][0]["before"]:
        yield f"{count(before, 'line')} missing before the first line that was read of a worker"
    if missing := found["workers"][0]["missing"]:
        yield f"{count(missing, 'line')} missing from the workers' numbering"
    if found["rejects"]:
        least = "at least " if len(found["rejects"]) == SHOWN else ""
        yield f"{least}{_unread(found['rejects'])} that can't be read"


def _unread(rejects: Rows) -> str:
    torn = sum(row["lines"] for row in rejects if row["reason"] == _TORN)
    lines = sum(row["lines"] for row in rejects) - torn
    counts = ((lines, "line"), (torn, _TORN))
    return " and ".join(count(number, noun) for number, noun in counts if number)


def _stretch(days: Days) -> str:
    return str(days.first) if days.first == days.last else f"{days.first} to {days.last}"


def _column(
    name: str, key: str = "", show: Callable[[Any], str] = text, kind: str = ""
) -> tuple[str, str, Callable[[Any], str], str]:
    """Return a column of a table.

    Args:
        name: Its title, which may be empty.
        key: The rows' field, if it is not named like the column; `*` for the whole row.
        show: Returns the text of a cell.
        kind: An element around the text, or `beam`: a bar as long as the number in the field.
    """
    return name, key or name, show, kind


def _whole(calls: float) -> int:
    """Return whole calls, because a call was made even if the journal has only a part of it."""
    return max(1, math.ceil(calls - _TINY))


#: What the template uses, besides the functions of `phrases`.
_NAMES = {
    "causes": CAUSES,
    "column": _column,
    "ends": _ENDS,
    "GLUE": phrases.GLUE,
    "IN_NO_JOURNAL": IN_NO_JOURNAL,
    "meanings": _MEANINGS,
    "QUEUES": QUEUES,
    "SHOWN": SHOWN,
    "whole": _whole,
}
