"""The command `python -m celery_sqs_heartbeat.pipeline stream`."""

from __future__ import annotations

import click

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import Command, NothingFound, refusing
from celery_sqs_heartbeat.pipeline.engine.faults import engine_faults
from celery_sqs_heartbeat.pipeline.options import (
    journal_option,
    lookback_option,
    warehouse_option,
    warn_of,
)
from celery_sqs_heartbeat.pipeline.storage.apart import check_apart
from celery_sqs_heartbeat.pipeline.storage.path_checks import (
    check_checkpoint,
    check_journal,
    check_target,
)


@click.command(cls=Command)
@journal_option
@warehouse_option
@click.option(
    "--checkpoint", required=True, metavar="PATH", help="Folder or URL for the stream's progress."
)
@click.option("--once", is_flag=True, help="Process what there is, then exit.")
@click.option(
    "--every",
    type=click.IntRange(1, 86_400),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="1 to 86,400: how often to look for new segments.",
)
@click.option(
    "--late",
    type=click.IntRange(1, 365),
    metavar="DAYS",
    default=30,
    show_default=True,
    help="1 to 365: segments closed earlier than that before the newest are left to the daily job.",
)
@lookback_option
def stream(
    journal: str,
    warehouse: str,
    checkpoint: str,
    once: bool,
    every: int,
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
            # A journal that has just started can be followed.
            if once:
                raise
        check_target(warehouse, Span())
        check_checkpoint(checkpoint)
        check_apart(journal=journal, warehouse=warehouse, checkpoint=checkpoint)
    # Not at the top, because the help needs no Spark.
    from celery_sqs_heartbeat.pipeline.engine.session import new_session
    from celery_sqs_heartbeat.pipeline.engine.stream import start
    from celery_sqs_heartbeat.pipeline.storage.holdings import refuse_unreadable, unread_in
    from celery_sqs_heartbeat.pipeline.storage.journal_days import journal_days
    from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

    with refusing(), engine_faults(f"keep the tables of {journal!r} in {warehouse!r} fresh"):
        spark = new_session("sqs-heartbeat stream")
        query = start(
            spark,
            journal,
            warehouse,
            checkpoint,
            every=None if once else every,
            tell=click.echo,
            lookback=lookback,
            late=late,
        )
        query.awaitTermination()
        if once and (days := journal_days(spark, journal)):
            tables = Warehouse(spark, warehouse)
            refuse_unreadable(tables, days, journal)
            warn_of(unread_in(tables, days, journal))
