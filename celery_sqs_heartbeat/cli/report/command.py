"""The command `report`."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from celery_sqs_heartbeat.common.day_options import check_days, from_option, to_option
from celery_sqs_heartbeat.common.exits import Command, epilog, refusing
from celery_sqs_heartbeat.pipeline.options import (
    SAIL,
    engine_option,
    require_jinja2,
    require_pyspark,
)


@click.command(cls=Command, epilog=epilog("report"))
@click.argument("source", metavar="JOURNAL_OR_WAREHOUSE")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="File to write the page to.",
)
@from_option
@to_option
@engine_option
def report(
    source: str,
    out: Path,
    first: datetime.date | None,
    last: datetime.date | None,
    engine: str,
) -> None:
    """Write a page on what happened to the messages.

    JOURNAL_OR_WAREHOUSE is what sqs_heartbeat_journal names, a folder or URL of the workers'
    journals, or the tables that the pipeline's run has made of them. The page says first what it
    covers. Exits with 1, without a page, when there are no messages of these days, and with 2 when
    it is neither a journal nor a warehouse.
    """
    check_days(first, last)
    require_pyspark()
    require_jinja2()
    # Not at the top: every `celery` command imports this module.
    from celery_sqs_heartbeat.cli.report.page_file import check_page, write_page
    from celery_sqs_heartbeat.common.days import Span
    from celery_sqs_heartbeat.pipeline.engine.faults import engine_faults
    from celery_sqs_heartbeat.pipeline.schema import REPORTED
    from celery_sqs_heartbeat.pipeline.storage.path_checks import check_source

    check_page(out)
    with refusing():
        span = Span(first, last)
        is_journal = check_source(source, span, REPORTED, is_here=engine == SAIL or None)
        from celery_sqs_heartbeat.pipeline.report.reporting import page_of

        with engine_faults(f"report on {source!r}"):
            page = page_of(source, span, engine, is_journal=is_journal)
    write_page(out, page)
    click.echo(f"Wrote {out}, {len(page.encode()) // 1000:,} kB.")
