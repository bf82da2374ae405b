"""The command `report`."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from celery_sqs_heartbeat.cli.days import check_days, from_option, to_option
from celery_sqs_heartbeat.exits import epilog, refusing
from celery_sqs_heartbeat.pipeline.options import engine_option, require_pyspark


@click.command(epilog=epilog("report"))
@click.argument("journal", required=False)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="File to write the page to.",
)
@click.option(
    "--warehouse", metavar="PATH", help="Tables that are there already, instead of a journal."
)
@from_option
@to_option
@engine_option
def report(
    journal: str | None,
    out: Path,
    warehouse: str | None,
    first: datetime.date | None,
    last: datetime.date | None,
    engine: str,
) -> None:
    """Write a page on what happened, from JOURNAL: a folder or URL of the workers' journals."""
    if (journal is None) is (warehouse is None):
        raise click.UsageError("give either JOURNAL or --warehouse")
    check_days(first, last)
    require_pyspark()
    # Not at the top: every `celery` command imports this module.
    from celery_sqs_heartbeat.pipeline.report.making import page_of

    with refusing():
        page = page_of(journal, warehouse, first, last, engine)
    out.write_text(page, encoding="utf-8")
    click.echo(f"Wrote {out}, {len(page.encode()) // 1000:,} kB.")
