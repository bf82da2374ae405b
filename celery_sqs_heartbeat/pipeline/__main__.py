"""The command `python -m celery_sqs_heartbeat.pipeline run`, which `spark-submit` starts, too."""

from __future__ import annotations

import datetime

import click

from celery_sqs_heartbeat.common.days import Span, check_days, from_option, to_option
from celery_sqs_heartbeat.common.exits import Command, NothingFound, epilog, refusing
from celery_sqs_heartbeat.pipeline.faults import progress_line, require, spark_faults, warn_of
from celery_sqs_heartbeat.pipeline.path_checks import check_apart, check_journal, check_target
from celery_sqs_heartbeat.pipeline.schema import TABLES

_PROG = "python -m celery_sqs_heartbeat.pipeline"


@click.group()
def main() -> None:
    """Make tables from the workers' journals."""
    require("pyspark", "PySpark")


@main.command(cls=Command, epilog=epilog("run"))
@click.option(
    "--journal",
    required=True,
    metavar="PATH",
    help="Folder or URL of the journal, as in sqs_heartbeat_journal.",
)
@click.option("--warehouse", required=True, metavar="PATH", help="Folder or URL of the tables.")
@from_option
@to_option
@click.option(
    "--lookback",
    type=click.IntRange(1, 30),
    metavar="DAYS",
    default=4,
    show_default=True,
    help="1 to 30: how many days before and after to look for other receives of a message.",
)
def run(
    journal: str,
    warehouse: str,
    first: datetime.date | None,
    last: datetime.date | None,
    lookback: int,
) -> None:
    """Build the tables from the journal's days, by default from all."""
    check_days(first, last)
    span = Span(first, last)
    with refusing():
        check_journal(journal, span)
        check_target(warehouse, span.grown(2 + lookback))
        check_apart(journal=journal, warehouse=warehouse)
    # Not at the top, because the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.jobs import build
    from celery_sqs_heartbeat.pipeline.spark import new_session
    from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

    progress = progress_line()
    with refusing(), spark_faults(f"make tables of {journal!r} in {warehouse!r}"):
        spark = new_session("sqs-heartbeat run")
        tables = Warehouse(spark, warehouse)
        days = build(spark, journal, tables, span, lookback=lookback, progress=progress)
        if days is None:
            raise _nothing(journal, "segments", span)
        rows = tables.count_rows(days.grown(1 + lookback, lookback))
        is_any_found = tables.has_messages(days)
        unread = tables.unread_in(days, journal)
    click.echo(f"Read the journal from {days.first} to {days.last}. The tables now contain:")
    click.echo(_text_of(rows))
    if not is_any_found:
        raise _nothing(journal, "messages", span)
    warn_of(unread)


def _nothing(journal: str, what: str, span: Span) -> NothingFound:
    return NothingFound(f"the journal {journal!r} has no {what} {span}".rstrip())


def _text_of(rows: dict[tuple[str, datetime.date], int]) -> str:
    """Return the numbers as a text table: a line for each table, a column for each day."""
    days = sorted({day for _, day in rows})
    lines = ["".join([f"{'rows':<16}", *(f"{day!s:>13}" for day in days)])]
    for table in TABLES:
        counts = (rows.get((table, day), 0) for day in days)
        lines.append("".join([f"{table:<16}", *(f"{count:>13,}" for count in counts)]))
    return "\n".join(lines)


if __name__ == "__main__":
    main(prog_name=_PROG)
