"""The commands of `python -m celery_sqs_heartbeat.pipeline`: `run`, `events` and `stream`."""

from __future__ import annotations

import datetime

import click

from celery_sqs_heartbeat.common.days import Span, check_days, from_option, to_option
from celery_sqs_heartbeat.common.exits import Command, NothingFound, epilog, refusing
from celery_sqs_heartbeat.pipeline.engine.choice import choose
from celery_sqs_heartbeat.pipeline.engine.faults import engine_faults
from celery_sqs_heartbeat.pipeline.options import (
    SPARK,
    engine_option,
    journal_option,
    lookback_option,
    progress_line,
    require_pyspark,
    warehouse_option,
    warn_of,
)
from celery_sqs_heartbeat.pipeline.storage.apart import check_apart
from celery_sqs_heartbeat.pipeline.storage.path_checks import check_journal, check_target
from celery_sqs_heartbeat.pipeline.stream_command import stream

_PROG = "python -m celery_sqs_heartbeat.pipeline"


@click.group()
def main() -> None:
    """Make tables from the workers' journals."""
    require_pyspark()


@main.command(cls=Command, epilog=epilog("run"))
@journal_option
@warehouse_option
@from_option
@to_option
@lookback_option
@engine_option
def run(
    journal: str,
    warehouse: str,
    first: datetime.date | None,
    last: datetime.date | None,
    lookback: int,
    engine: str,
) -> None:
    """Build the tables from the journal's days, by default from all."""
    check_days(first, last)
    span = Span(first, last)
    choice = choose(engine, journal, warehouse)
    with refusing():
        check_journal(journal, span, is_here=choice.is_here)
        check_target(warehouse, span.grown(2 + lookback), is_here=choice.is_here)
        check_apart(is_here=choice.is_here, journal=journal, warehouse=warehouse)
    choice.say()
    # Not at the top, because the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.engines import engine_of
    from celery_sqs_heartbeat.pipeline.storage.holdings import (
        has_messages,
        text_of,
        unread_in,
        written,
    )

    progress = progress_line()
    with refusing(), engine_faults(f"make tables of {journal!r} in {warehouse!r}"):
        by = engine_of(choice.engine)
        spark = by.start("sqs-heartbeat run")
        days = by.build(
            spark, journal, warehouse, first, last, lookback=lookback, progress=progress
        )
        if days is None:
            raise _nothing(journal, "segments", span)
        tables = by.warehouse(spark, warehouse)
        rows = written(tables, days.grown(1 + lookback, lookback))
        is_any_found = has_messages(tables, days)
        unread = unread_in(tables, days, journal)
    click.echo(f"Read the journal from {days.first} to {days.last}. The tables now contain:")
    click.echo(text_of(rows))
    if not is_any_found:
        raise _nothing(journal, "messages", span)
    warn_of(unread)


@main.command(cls=Command, epilog=epilog("events"))
@journal_option
@warehouse_option
@from_option
@to_option
def events(
    journal: str, warehouse: str, first: datetime.date | None, last: datetime.date | None
) -> None:
    """Write only `events` and `rejects`, with Spark."""
    check_days(first, last)
    span = Span(first, last)
    with refusing():
        check_journal(journal, span)
        check_target(warehouse, span.grown(1))
        check_apart(journal=journal, warehouse=warehouse)
    # Not at the top, because the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.engines import engine_of
    from celery_sqs_heartbeat.pipeline.storage.holdings import has_messages, unread_in

    progress = progress_line()
    with refusing(), engine_faults(f"make events of {journal!r} in {warehouse!r}"):
        by = engine_of(SPARK)
        spark = by.start("sqs-heartbeat events", source=journal)
        days = by.read_journal(spark, journal, warehouse, first, last, progress=progress)
        if days is None:
            raise _nothing(journal, "segments", span)
        tables = by.warehouse(spark, warehouse)
        is_any_found = has_messages(tables, days)
        unread = unread_in(tables, days, journal)
    click.echo(f"Read the journal from {days.first} to {days.last}.")
    if not is_any_found:
        raise _nothing(journal, "messages", span)
    warn_of(unread)


main.add_command(stream)


def _nothing(journal: str, what: str, span: Span) -> NothingFound:
    return NothingFound(f"the journal {journal!r} has no {what} {span}".rstrip())


if __name__ == "__main__":
    main(prog_name=_PROG)
