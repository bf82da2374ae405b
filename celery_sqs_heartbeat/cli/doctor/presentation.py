"""Prints findings, as text for people or as JSON for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from json import dumps
from typing import Any

import click

from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Severity
from celery_sqs_heartbeat.cli.doctor.finding_groups import Group, grouped, headline, values_of
from celery_sqs_heartbeat.cli.terminal.output import show
from celery_sqs_heartbeat.cli.terminal.shapes import (
    Block,
    Explanation,
    Explanations,
    Lines,
    Style,
    Styled,
)
from celery_sqs_heartbeat.common.escaping import counted

_LABELS = {
    Severity.ERROR: Styled("ERROR", Style(color="red", bold=True)),
    Severity.WARNING: Styled("WARNING", Style(color="yellow", bold=True)),
    Severity.INFO: Styled("NOTE", Style(color="cyan", bold=True)),
    Severity.OK: Styled("OK", Style(color="green", bold=True)),
}
_NOUNS = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("note", "notes"),
    Severity.OK: ("check passed", "checks passed"),
}


def print_findings(
    findings: Sequence[Finding], *, json: bool, color: bool | None, file: Any = None
) -> None:
    """Print findings as JSON or as text.

    Args:
        color: False for no colors; None lets the terminal decide.
        file: The file to print to; None for standard output.
    """
    if json:
        click.echo(as_json(findings), file=file)
    else:
        show(blocks_of(findings), color=color, file=file)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as a JSON list."""
    return dumps([finding.as_plain() for finding in findings], indent=2)


def blocks_of(findings: Sequence[Finding]) -> list[Block]:
    """Return the findings as blocks, followed by a line with their counts."""
    parts = [_explanation(group) for group in grouped(findings)]
    return [
        Explanations(heading="Finding", reference="Id", parts=parts),
        Lines([Styled(summary(findings))]),
    ]


def summary(findings: Sequence[Finding]) -> str:
    """Return how many groups of findings there are of each severity."""
    counts = Counter(group.first.severity for group in grouped(findings))
    parts = [counted(counts[severity], *nouns) for severity, nouns in _NOUNS.items()]
    return f"{', '.join(parts)}."


def _explanation(group: Group) -> Explanation:
    finding = group.first
    is_explained = finding.severity is not Severity.OK
    details = {"Why": finding.why, "Fix": finding.fix} if is_explained else {}
    return Explanation(
        label=_LABELS[finding.severity],
        head=headline(group),
        items=values_of(group),
        details=[(name, text) for name, text in details.items() if text],
        reference=finding.id,
    )
