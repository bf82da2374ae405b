"""The command `tune`, which prints recommendations as settings to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Any

import click

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import (
    DONE,
    FOUND,
    Command,
    NothingFound,
    Refusal,
    epilog,
    refusing,
)
from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS
from celery_sqs_heartbeat.pipeline.faults import progress_line, require, spark_faults, warn_of
from celery_sqs_heartbeat.settings import PREFIX

if TYPE_CHECKING:
    from celery_sqs_heartbeat.leases.lease import LeaseTerms
    from celery_sqs_heartbeat.pipeline.advice import Row, Verdict

_WIDTH = 96
_WORDS = (
    "An attempt is one receive of a message by a worker. If a message is received again, that is "
    "another attempt. The worker holds the message until its task ends. Until then, extension "
    "calls hide it from other workers. If they come too late, the worker loses its lease."
)


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
    from celery_sqs_heartbeat.pipeline.path_checks import check_source
    from celery_sqs_heartbeat.pipeline.schema import SURVEYED

    with refusing():
        is_journal = check_source(source, Span(), SURVEYED)
    from celery_sqs_heartbeat.pipeline import jobs
    from celery_sqs_heartbeat.pipeline.advice import RECOMMENDED, RUNNING, recommend, verdicts_of
    from celery_sqs_heartbeat.worker.settings import naming

    names, terms_of = _of_app(context.obj.app, needs_tasks=check)
    progress_line()(f"measuring {source}")
    with refusing(), spark_faults(f"measure {source!r}"):
        found, unread = jobs.measure(source, is_journal=is_journal)
    rows = [row for row in recommend(found) if row.rank in (RECOMMENDED, RUNNING)]
    if not rows:
        raise NothingFound(
            f"{source!r} has no messages yet: run workers with sqs_heartbeat_journal"
        )
    verdicts = list(verdicts_of(found, terms_of)) if check else []
    if as_json:
        output = {"recommendations": [asdict(row) for row in rows]}
        if check:
            output["checks"] = [asdict(each) for each in verdicts]
        click.echo(dumps(output, indent=2))
    else:
        click.echo(as_settings(rows, names, rename=naming(context.obj.app)))
        if check:
            click.echo("\n".join(["", *(as_line(verdict) for verdict in verdicts)]))
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
    from celery_sqs_heartbeat.worker.settings import naming

    if needs_tasks and (broken := import_tasks(app)):
        raise Refusal(f"the app's tasks can't be imported: {broken}")
    facts = read_app(app)
    if faults := [*facts.faults, *facts.broker.option_faults]:
        raise Refusal("the app's settings are wrong: " + naming(app)("; ".join(faults)))
    sqs = facts.broker.sqs
    names = {sqs.sqs_name(name): name for name in queue_names(app)} if sqs else {}

    def terms_of(queue: str, task: str | None, own_timeout: int) -> LeaseTerms:
        return facts.settings.for_task(names.get(queue, queue), task).terms(own_timeout)

    return names, terms_of


def as_settings(
    rows: Sequence[Row], names: Mapping[str, str], *, rename: Callable[[str], str] = str
) -> str:
    """Return Python code, each setting with its reason as a comment.

    Args:
        rows: The recommended settings (rank 0) and the running ones (rank -1).
        names: Celery's queue names, by SQS's names.
        rename: Names a setting as the app's users write it, see `naming`. If the app has a
            namespace, as in Django, the code is for its settings module. Otherwise it is for the
            module that makes the app.
    """
    setting = f"{PREFIX}queues"
    renamed = rename(setting)
    target = renamed if renamed != setting else f"app.conf.{setting}"
    running = {row.queue: row for row in rows if row.rank < 0}
    recommended = [row for row in rows if row.rank == 0]
    lines = [*_comment(_WORDS, ""), f"{target} = {{"]
    for row in recommended:
        if row.task is None:
            lines += _comment(f"{_head(row, running.get(row.queue))} {row.reason}", "    ")
            lines.append(f"    {names.get(row.queue, row.queue)!r}: {_values(row)},")
    lines.append("}")
    for row in recommended:
        if row.task is not None:
            whose = f"Task {row.task} on queue {names.get(row.queue, row.queue)}:"
            lines += ["", *_comment(f"{whose} {_head(row, None)} {row.reason}", "")]
            lines.append(f"# @app.task(sqs_heartbeat={_values(row)})")
    return "\n".join(lines)


def as_line(verdict: Verdict) -> str:
    """Return a line about a setting that was compared."""
    whose = f"queue {verdict.queue}" + (f", task {verdict.task}" if verdict.task else "")
    said = f"visibility_timeout={verdict.visibility_timeout}, threshold={verdict.threshold:g}"
    if verdict.fault:
        return escaped(f"# WORSE: {whose}: {said}: {verdict.fault}")
    thin = "; too little data to find faults" if verdict.confidence == "low" else ""
    return escaped(f"# OK: {whose}: {said}{thin}")


def _head(row: Row, running: Row | None) -> str:
    """Return the values, and whether they differ from those in use."""
    timeout, threshold = f"{row.visibility_timeout:,} s", f"{row.threshold:,g} s"
    if running is None:
        return f"Set visibility_timeout {timeout} and threshold {threshold}."
    old = (running.visibility_timeout, running.threshold)
    if (row.visibility_timeout, row.threshold) == old:
        return f"Keep visibility_timeout {timeout} and threshold {threshold}."
    return (
        f"Change visibility_timeout from {old[0]:,} s to {timeout}, and threshold from "
        f"{old[1]:,g} s to {threshold}."
    )


def _values(row: Row) -> str:
    values = {"visibility_timeout": row.visibility_timeout, "threshold": row.threshold}
    if row.max_lease < DEFAULT_MAX_LEASE_SECONDS:
        values["max_lease"] = row.max_lease
    return "{" + ", ".join(f'"{name}": {value:g}' for name, value in values.items()) + "}"


def _comment(text: str, indent: str) -> Iterator[str]:
    from celery_sqs_heartbeat.pipeline.phrases import GLUE, glued

    start = f"{indent}# "
    lines = textwrap.wrap(
        glued(escaped(text)),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace(GLUE, " ") for line in lines)
