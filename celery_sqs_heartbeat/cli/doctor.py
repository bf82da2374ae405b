"""The command `doctor`, and the options that it shares with Celery's worker."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import Any

import click

from celery_sqs_heartbeat.cli.findings import Finding, Severity, as_lines
from celery_sqs_heartbeat.common.exits import DONE, FOUND, REFUSED, Command, epilog

#: Digits of the largest concurrency: more than any machine runs.
_MOST_DIGITS = 6

#: Which queues to check, like the worker's option -Q.
queues_option = click.option(
    "-Q",
    "--queues",
    metavar="A,B",
    help="Only these queues, instead of all that the app consumes from.",
)


def split(queues: str | None) -> list[str]:
    """Return the names in a comma-separated list, without duplicates.

    Raises:
        click.BadParameter: One of them is empty.
    """
    # A worker keeps blanks in the names, too.
    names = [] if queues is None else queues.split(",")
    if "" in names:
        raise click.BadParameter(
            f"{queues!r} has an empty name in it: write names with one comma between them",
            param_hint="-Q",
        )
    return list(dict.fromkeys(names))


class Concurrency(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """How many tasks a worker runs at a time: a whole number, or Celery 5.7's "auto"."""

    name = "concurrency"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number; None for 0 and "auto", for which Celery chooses."""
        text = str(value)
        # Python refuses to convert very long numbers, with an error of its own.
        if text.isdecimal() and len(text) <= _MOST_DIGITS:
            return int(text) or None
        if text != "auto":
            self.fail(f"{text[:20]!r} must be a whole number, 0 or more, or 'auto'", param, ctx)
        return None


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
