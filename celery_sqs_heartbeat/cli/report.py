"""The command `report`."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import click

from celery_sqs_heartbeat.cli.whole_files import is_permitted, write_whole
from celery_sqs_heartbeat.common.days import check_days, from_option, to_option
from celery_sqs_heartbeat.common.exits import Command, Refusal, epilog, refusing
from celery_sqs_heartbeat.pipeline.faults import require, spark_faults, warn_of


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
def report(
    source: str,
    out: Path,
    first: datetime.date | None,
    last: datetime.date | None,
) -> None:
    """Write a page about what happened to the messages.

    JOURNAL_OR_WAREHOUSE is the folder or URL of the workers' journals (sqs_heartbeat_journal), or
    the warehouse: the tables that the pipeline built from them. The page begins with the period
    that it covers. If there are no messages in these days, the command writes no page and exits
    with 1. If a part can't be read, it writes the page of the rest, names the part on standard
    error, and exits with 1. If JOURNAL_OR_WAREHOUSE is neither, it exits with 2.
    """
    check_days(first, last)
    require("pyspark", "PySpark")
    require("jinja2", "Jinja2")
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.common.days import Span
    from celery_sqs_heartbeat.pipeline.path_checks import check_source
    from celery_sqs_heartbeat.pipeline.schema import REPORTED

    check_page(out)
    with refusing():
        span = Span(first, last)
        is_journal = check_source(source, span, REPORTED)
        from celery_sqs_heartbeat.pipeline.report.page import page_of

        with spark_faults(f"report on {source!r}"):
            page, unread = page_of(source, span, is_journal=is_journal)
    write_page(out, page)
    click.echo(f"Wrote {out}, {len(page.encode()) // 1000:,} kB.")
    warn_of(unread)


def check_page(out: Path) -> None:
    """Check that a page can be written to a path, before the work for it begins.

    Raises:
        Refusal: The path is a folder, or its folder is missing or not writable.
    """
    try:
        if out.is_dir():
            raise _refusal(out, "it is a folder")
        if out.exists():
            if not is_permitted(out, os.W_OK):
                raise _refusal(out, "it is not writable by this user")
        elif not out.parent.is_dir():
            raise _refusal(out, f"there is no folder {str(out.parent)!r}")
        elif not is_permitted(out.parent, os.W_OK | os.X_OK):
            raise _refusal(out, f"{str(out.parent)!r} is not writable by this user")
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None


def write_page(out: Path, page: str) -> None:
    """Write a page completely, or not at all.

    Raises:
        Refusal: The page can't be written, for example because the disk is full.
    """
    try:
        write_whole(out, page.encode())
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None


def _refusal(out: Path, fault: str) -> Refusal:
    return Refusal(f"--out {str(out)!r} can't be written: {fault}; name a file that can be written")
