"""The jobs: `python -m celery_sqs_heartbeat.pipeline run`, `events` and `stream`."""

from __future__ import annotations

import datetime

import click

from celery_sqs_heartbeat.cli.days import check_days, from_option, to_option
from celery_sqs_heartbeat.exits import epilog, refusing
from celery_sqs_heartbeat.pipeline.options import (
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


@main.command(epilog=epilog("run"))
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
    # Not at the top: the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.engines import engine_of
    from celery_sqs_heartbeat.pipeline.written import text_of, written

    progress = progress_line()
    with refusing():
        by = engine_of(engine)
        spark = by.start("sqs-heartbeat run")
        days = by.build(
            spark, journal, warehouse, first, last, lookback=lookback, progress=progress
        )
        progress("")
        if days is None:
            click.echo(f"The journal at {journal} has no segments of these days.")
            return
        click.echo(f"Read the journal from {days.first} to {days.last}. The tables now hold:")
        around = days.grown(1 + lookback, lookback)
        click.echo(text_of(written(by.warehouse(spark, warehouse), around)))


@main.command(epilog=epilog("events"))
@_journal
@_warehouse
@from_option
@to_option
def events(
    journal: str, warehouse: str, first: datetime.date | None, last: datetime.date | None
) -> None:
    """Write `events` and `rejects` alone, by Spark."""
    check_days(first, last)
    # Not at the top: the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.engines import engine_of

    progress = progress_line()
    with refusing():
        by = engine_of(SPARK)
        spark = by.start("sqs-heartbeat events", source=journal)
        days = by.read_journal(spark, journal, warehouse, first, last, progress=progress)
    progress("")
    read = f"from {days.first} to {days.last}" if days else "no segments of these days"
    click.echo(f"Read the journal: {read}.")


@main.command()
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
    # Not at the top: the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.session import new_session
    from celery_sqs_heartbeat.pipeline.stream import start

    with refusing():
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


if __name__ == "__main__":
    main(prog_name=_PROG)
