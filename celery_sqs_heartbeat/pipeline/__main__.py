"""The jobs: `python -m celery_sqs_heartbeat.pipeline run`, `events` and `stream`."""

from __future__ import annotations

import datetime

import click

from celery_sqs_heartbeat.cli.days import check_days, from_option, to_option
from celery_sqs_heartbeat.exits import Command, NothingFound, epilog, refusing
from celery_sqs_heartbeat.pipeline.checking import check_checkpoint, check_journal, check_target
from celery_sqs_heartbeat.pipeline.days import Span
from celery_sqs_heartbeat.pipeline.faults import engine_faults
from celery_sqs_heartbeat.pipeline.options import (
    SAIL,
    SPARK,
    engine_option,
    progress_line,
    require_pyspark,
)

_PROG = "python -m celery_sqs_heartbeat.pipeline"

_journal = click.option(
    "--journal",
    required=True,
    metavar="PATH",
    help="Folder or URL that sqs_heartbeat_journal names.",
)
_warehouse = click.option(
    "--warehouse", required=True, metavar="PATH", help="Folder or URL of the tables."
)
_lookback = click.option(
    "--lookback",
    type=click.IntRange(1, 30),
    metavar="DAYS",
    default=4,
    show_default=True,
    help="1 to 30: days before and after a day that a message's other receives are looked for in.",
)


@click.group()
def main() -> None:
    """Make tables of the workers' journals."""
    require_pyspark()


@main.command(cls=Command, epilog=epilog("run"))
@_journal
@_warehouse
@from_option
@to_option
@_lookback
@engine_option
def run(
    journal: str,
    warehouse: str,
    first: datetime.date | None,
    last: datetime.date | None,
    lookback: int,
    engine: str,
) -> None:
    """Build the tables from the journal's days, all of them if not told otherwise."""
    check_days(first, last)
    span = Span(first, last)
    with refusing():
        is_here = engine == SAIL or None
        check_journal(journal, span, is_here=is_here)
        check_target(warehouse, span.grown(2 + lookback), is_here=is_here)
    # Not at the top: the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.engines import engine_of
    from celery_sqs_heartbeat.pipeline.written import has_events, text_of, written

    progress = progress_line()
    with refusing(), engine_faults(f"make tables of {journal!r} in {warehouse!r}"):
        by = engine_of(engine)
        spark = by.start("sqs-heartbeat run")
        days = by.build(
            spark, journal, warehouse, first, last, lookback=lookback, progress=progress
        )
        if days is None:
            raise _no_segments(journal, span)
        rows = written(by.warehouse(spark, warehouse), days.grown(1 + lookback, lookback))
    click.echo(f"Read the journal from {days.first} to {days.last}. The tables now hold:")
    click.echo(text_of(rows))
    if not has_events(rows, days):
        raise NothingFound(
            f"no line of the journal {journal!r} from {days.first} to {days.last} is an event: "
            "the table rejects has the reasons"
        )


@main.command(cls=Command, epilog=epilog("events"))
@_journal
@_warehouse
@from_option
@to_option
def events(
    journal: str, warehouse: str, first: datetime.date | None, last: datetime.date | None
) -> None:
    """Write `events` and `rejects` alone, by Spark."""
    check_days(first, last)
    span = Span(first, last)
    with refusing():
        check_journal(journal, span)
        check_target(warehouse, span.grown(1))
    # Not at the top: the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.engines import engine_of

    progress = progress_line()
    with refusing(), engine_faults(f"make events of {journal!r} in {warehouse!r}"):
        by = engine_of(SPARK)
        spark = by.start("sqs-heartbeat events", source=journal)
        days = by.read_journal(spark, journal, warehouse, first, last, progress=progress)
        if days is None:
            raise _no_segments(journal, span)
    click.echo(f"Read the journal from {days.first} to {days.last}.")


@main.command(cls=Command)
@_journal
@_warehouse
@click.option(
    "--checkpoint", required=True, metavar="PATH", help="Folder or URL of what was done already."
)
@click.option("--once", is_flag=True, help="Take in what there is, then end.")
@click.option(
    "--every",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Look for new segments so often; at least 1.",
)
@click.option(
    "--late",
    type=click.IntRange(1, 365),
    metavar="DAYS",
    default=30,
    show_default=True,
    help="1 to 365: segments closed longer than that before the newest are left to the daily job.",
)
@_lookback
def stream(
    journal: str,
    warehouse: str,
    checkpoint: str,
    once: bool,
    every: float,
    late: int,
    lookback: int,
) -> None:
    """Keep attempts, in_flight and duplicates fresh as segments are closed.

    Prints each new duplicate as a line of JSON.
    """
    with refusing():
        try:
            check_journal(journal, Span(), closed=once)
        except NothingFound:
            # A journal that was just begun can be followed.
            if once:
                raise
        check_target(warehouse, Span())
        check_checkpoint(checkpoint)
    # Not at the top: the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.session import new_session
    from celery_sqs_heartbeat.pipeline.stream import start

    with refusing(), engine_faults(f"keep the tables of {journal!r} in {warehouse!r} fresh"):
        query = start(
            new_session("sqs-heartbeat stream"),
            journal,
            warehouse,
            checkpoint,
            every=None if once else every,
            tell=click.echo,
            lookback=lookback,
            late=late,
        )
        query.awaitTermination()


def _no_segments(journal: str, span: Span) -> NothingFound:
    return NothingFound(f"the journal {journal!r} has no segments {span}".rstrip())


if __name__ == "__main__":
    main(prog_name=_PROG)
