"""The command `doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import Any

import click

from celery_sqs_heartbeat.cli.findings import Finding, Severity, as_lines
from celery_sqs_heartbeat.cli.options import Concurrency, queues_option, split
from celery_sqs_heartbeat.common.exits import DONE, FOUND, REFUSED, Command, epilog


@click.command(cls=Command, epilog=epilog("doctor"))
@queues_option
@click.option(
    "-P",
    "--pool",
    metavar="POOL",
    help="The worker's pool, if its command line overrides the app's.",
)
@click.option(
    "-c",
    "--concurrency",
    type=Concurrency(),
    metavar="N",
    help="The worker's concurrency, if its command line overrides the app's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list.")
@click.option("--strict", is_flag=True, help="Exit with 1 when there are warnings.")
@click.pass_context
def doctor(
    context: click.Context,
    queues: str | None,
    pool: str | None,
    concurrency: int | None,
    as_json: bool,
    strict: bool,
) -> None:
    """Check what a worker needs: settings, queues, permissions, this machine.

    The doctor changes nothing and receives no messages.
    """
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.cli.examination import examine

    app = context.obj.app
    findings = examine(app, queues=split(queues), pool=pool, concurrency=concurrency)
    print_findings(findings, json=as_json, color=False if context.obj.no_color else None)
    context.exit(exit_status(findings, strict=strict))


def print_findings(
    findings: Sequence[Finding], *, json: bool, color: bool | None, file: Any = None
) -> None:
    """Print findings as JSON or as text.

    Args:
        color: False for no colors; None lets the terminal decide.
        file: The file to print to; None for standard output.
    """
    if json:
        click.echo(dumps([finding.as_plain() for finding in findings], indent=2), file=file)
    else:
        click.echo("\n".join(as_lines(findings)), file=file, color=color)


def exit_status(findings: Sequence[Finding], *, strict: bool) -> int:
    """Return 2 if there are errors, 1 if `strict` and there are warnings, else 0."""
    found = {finding.severity for finding in findings}
    if Severity.ERROR in found:
        return REFUSED
    return FOUND if strict and Severity.WARNING in found else DONE
