"""Makes the report of a journal, or of existing tables, as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from celery_sqs_heartbeat.common.days import Days, Span, stretches
from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.pipeline.jobs import opened
from celery_sqs_heartbeat.pipeline.options import progress_line
from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.blocks import text
from celery_sqs_heartbeat.pipeline.report.queries import SHOWN, Found, Rows, collect
from celery_sqs_heartbeat.pipeline.report.sections import SECTIONS
from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.session import new_session

#: The reason of whole rejected segments, rather than lines; see `rejects`.
_TORN = "torn segment"
#: Gaps between days that are listed.
_STRETCHES = 5


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
    head, gaps = _covered(found, span, segments)
    sections = [(anchor, title, blocks(found)) for anchor, title, blocks in SECTIONS]
    return environment.get_template("page.html.j2").render(sections=sections, head=head, gaps=gaps)


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


def _covered(found: Found, span: Span, segments: int | None) -> tuple[str, list[str]]:
    """Return what the report covers, and the gaps in it.

    Args:
        span: The requested days.
        segments: Number of a journal's segments; None for a warehouse, which does not record it.
    """
    seen = [row[PARTITION] for row in found["days"]]
    days = Days(span.first or seen[0], span.last or seen[-1]) if seen else None
    source = (
        "tables of a warehouse"
        if segments is None
        else count(segments, "segment") + " of their journal"
    )
    when = ""
    if days:
        length = (days.last - days.first).days + 1
        of_all = "" if len(seen) == length else f" of {length:,}"
        when = (
            f", {len(seen):,}{of_all} {'day' if length == 1 else 'days'} with events: "
            f"{days.first} to {days.last} (UTC)"
        )
    head = (
        f"Covers {count(found['workers'][0]['starts'] or 0, 'worker')}, {source}{when}. "
        "A restarted worker counts as one more."
    )
    return head, list(_gaps(found, seen, days))


def _gaps(found: Found, seen: Sequence[date], days: Days | None) -> Iterator[str]:
    if days and (lacking := stretches(set(days) - set(seen))):
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
