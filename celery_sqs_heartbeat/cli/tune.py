"""The command `tune`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Any

import click

from celery_sqs_heartbeat.common.exits import (
    DONE,
    FOUND,
    Command,
    NothingFound,
    Refusal,
    epilog,
    refusing,
)
from celery_sqs_heartbeat.pipeline.faults import progress_line, require, spark_faults, warn_of

if TYPE_CHECKING:
    from celery_sqs_heartbeat.leases.lease import LeaseTerms


@click.command(cls=Command, epilog=epilog("tune"))
@click.argument("source", metavar="JOURNAL_OR_WAREHOUSE")
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 1 if the app's settings are worse than the recommended ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the recommendations as JSON.")
@click.pass_context
def tune(context: click.Context, source: str, check: bool, as_json: bool) -> None:
    """Recommend settings for each queue, from the measurements in the workers' journals.

    JOURNAL_OR_WAREHOUSE is the folder or URL of the workers' journals (sqs_heartbeat_journal), or
    the warehouse: the tables that the pipeline built from them.

    Settings are worse if extensions use more than half of the threshold, or came too late in more
    than one of 10,000 attempts; if max_lease is too short; or if the visibility timeout is more
    than 4 times as long as it should be, or makes more than 40 extensions of an attempt necessary.
    Running settings that are not worse are recommended unchanged. If there is too little data, the
    output says so, and nothing counts as worse.
    """
    require("pyspark", "PySpark")
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.common.days import Span
    from celery_sqs_heartbeat.pipeline.path_checks import check_source
    from celery_sqs_heartbeat.pipeline.schema import SURVEYED

    with refusing():
        is_journal = check_source(source, Span(), SURVEYED)
    from celery_sqs_heartbeat.cli.settings_code import as_settings, as_text
    from celery_sqs_heartbeat.pipeline import jobs
    from celery_sqs_heartbeat.pipeline.advice import RECOMMENDED, RUNNING, recommend, verdicts_of
    from celery_sqs_heartbeat.worker.settings import naming

    names, terms_of = _of_app(context.obj.app, needs_tasks=check)
    progress = progress_line()
    progress(f"measuring {source}")
    with refusing(), spark_faults(f"measure {source!r}"):
        found, unread = jobs.measure(source, is_journal=is_journal)
    rows = [row for row in recommend(found) if row.rank in (RECOMMENDED, RUNNING)]
    if not rows:
        raise NothingFound(
            f"{source!r} has no messages yet: run workers with sqs_heartbeat_journal"
        )
    verdicts = list(verdicts_of(found, terms_of)) if check else []
    if as_json:
        output = {
            "recommendations": [asdict(row) for row in rows],
            **({"checks": [asdict(each) for each in verdicts]} if check else {}),
        }
        click.echo(dumps(output, indent=2))
    else:
        click.echo(as_settings(rows, names, rename=naming(context.obj.app)))
        if check:
            click.echo(as_text(verdicts))
    warn_of(unread)
    context.exit(FOUND if any(each.fault for each in verdicts) else DONE)


def _of_app(
    app: Any, *, needs_tasks: bool
) -> tuple[dict[str, str], Callable[[str, str | None, int], LeaseTerms]]:
    """Return Celery's queue names by SQS's names, and a function that returns the app's terms.

    Args:
        needs_tasks: Import the tasks, too: they may have their own settings.
    """
    from celery_sqs_heartbeat.cli.app import import_tasks, queue_names, read_app
    from celery_sqs_heartbeat.cli.broker import Broker
    from celery_sqs_heartbeat.worker.settings import naming

    if needs_tasks and (broken := import_tasks(app)):
        raise Refusal(f"the app's tasks can't be imported: {broken}")
    facts = read_app(app)
    if faults := [*facts.faults, *facts.broker.option_faults]:
        raise Refusal("the app's settings are wrong: " + naming(app)("; ".join(faults)))
    names = {}
    if facts.broker.is_sqs and facts.broker.fault is None:
        broker = Broker.of_app(app)
        names = {broker.sqs_name(name): name for name in queue_names(app)}

    def terms_of(queue: str, task: str | None, own_timeout: int) -> LeaseTerms:
        return facts.settings.for_task(names.get(queue, queue), task).terms(own_timeout)

    return names, terms_of
