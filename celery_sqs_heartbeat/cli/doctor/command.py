"""The command `doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from celery_sqs_heartbeat.cli.worker_options import Concurrency, queues_option, split
from celery_sqs_heartbeat.common.exits import DONE, FOUND, REFUSED, Command, epilog

if TYPE_CHECKING:
    from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding


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
    from celery_sqs_heartbeat.cli.doctor.examination import examine
    from celery_sqs_heartbeat.cli.doctor.presentation import print_findings

    app = context.obj.app
    findings = examine(app, queues=split(queues), pool=pool, concurrency=concurrency)
    print_findings(findings, json=as_json, color=False if context.obj.no_color else None)
    context.exit(exit_status(findings, strict=strict))


def exit_status(findings: Sequence[Finding], *, strict: bool) -> int:
    """Return 2 if there are errors, 1 if `strict` and there are warnings, else 0."""
    found = {finding.severity.value for finding in findings}
    if "error" in found:
        return REFUSED
    return FOUND if strict and "warning" in found else DONE
