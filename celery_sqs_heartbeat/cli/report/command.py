"""The command `report`."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from celery_sqs_heartbeat.common.days import check_days, from_option, to_option
from celery_sqs_heartbeat.common.exits import Command, epilog, refusing
from celery_sqs_heartbeat.pipeline.options import (
    engine_option,
    require_jinja2,
    require_pyspark,
    warn_of,
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
    """Write a page about what happened to the messages.

    JOURNAL_OR_WAREHOUSE is the folder or URL of the workers' journals (sqs_heartbeat_journal), or
    the warehouse: the tables that the pipeline built from them. The page begins with the period
    that it covers. If there are no messages in these days, the command writes no page and exits
    with 1. If a part can't be read, it writes the page of the rest, names the part on standard
    error, and exits with 1. If JOURNAL_OR_WAREHOUSE is neither, it exits with 2.
    """
    check_days(first, last)
    require_pyspark()
    require_jinja2()
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.cli.report.page_file import check_page, write_page
    from celery_sqs_heartbeat.common.days import Span
    from celery_sqs_heartbeat.pipeline.engine.choice import choose
    from celery_sqs_heartbeat.pipeline.engine.faults import engine_faults
    from celery_sqs_heartbeat.pipeline.schema import REPORTED
    from celery_sqs_heartbeat.pipeline.storage.path_checks import check_source

    check_page(out)
    choice = choose(engine, source)
    with refusing():
        span = Span(first, last)
        is_journal = check_source(source, span, REPORTED, is_here=choice.is_here)
        choice.say()
        from celery_sqs_heartbeat.pipeline.report.reporting import page_of

        with engine_faults(f"report on {source!r}"):
            page, unread = page_of(source, span, choice.engine, is_journal=is_journal)
    write_page(out, page)
    click.echo(f"Wrote {out}, {len(page.encode()) // 1000:,} kB.")
    warn_of(unread)
