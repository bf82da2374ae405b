"""Makes the report of a journal, or of existing tables."""

from __future__ import annotations

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK, progress_line
from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.findings import Findings, collect
from celery_sqs_heartbeat.pipeline.report.page import render
from celery_sqs_heartbeat.pipeline.report.sections.coverage import Coverage
from celery_sqs_heartbeat.pipeline.storage.holdings import unread_in
from celery_sqs_heartbeat.pipeline.storage.journal_days import count_segments
from celery_sqs_heartbeat.pipeline.storage.reach import within_reach


def page_of(
    source: str, span: Span, engine: str = SPARK, *, is_journal: bool | None = None
) -> tuple[str, str]:
    """Return the page for these days, and what could not be read, in words.

    A journal's tables are temporary.

    Args:
        source: A journal or a warehouse.
        is_journal: None if the source is not on this machine. Then it is a warehouse if it has
            tables.

    Raises:
        PipelineError: The source is neither, or the engine can't run.
        FetchError: The source is on S3, and can't be copied.
        NothingFound: There are no messages of these days.
    """
    progress = progress_line()
    progress(f"starting {engine.capitalize()}")
    by = engine_of(engine)
    spark = by.start("sqs-heartbeat report", source=source)
    first, last = span.first, span.last
    if is_journal is None:
        is_journal = not by.has_tables(spark, source)
    if not is_journal:
        tables = by.warehouse(spark, source)
        found = collect(tables, first, last, progress)
        unread = unread_in(tables, span, source)
        segments = None
    else:
        with (
            by.temporary(spark, source) as made,
            within_reach(spark, source, first, last, progress) as journal,
        ):
            if by.build(spark, journal, made, first, last, progress=progress) is None:
                raise NothingFound(f"the journal {source!r} has no segments {span}".rstrip())
            segments = count_segments(spark, journal, span)
            found = collect(made, first, last, progress)
            unread = unread_in(made, span, source)
    _refuse_nothing(source, span, found)
    return render(found, Coverage(span=span, segments=segments)), unread


def _refuse_nothing(source: str, span: Span, found: Findings) -> None:
    if found.overview["attempts"]:
        return
    rejected = sum(row["lines"] for row in found.rejects)
    unread = f"; {count(rejected, 'line')} could not be read" if rejected else ""
    days = f" {span}" if str(span) else ""
    raise NothingFound(
        f"{source!r} has no message that was received{days}: there is nothing to report{unread}"
    )
