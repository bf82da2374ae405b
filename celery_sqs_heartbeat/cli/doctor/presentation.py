"""Prints findings for people and for scripts."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from json import dumps
from typing import Any

import click

from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Severity
from celery_sqs_heartbeat.cli.doctor.finding_groups import ITEM, Group, grouped, headline

COLORS = {
    Severity.ERROR: "red",
    Severity.WARNING: "yellow",
    Severity.INFO: "cyan",
    Severity.OK: "green",
}
LABELS = {
    Severity.ERROR: "ERROR",
    Severity.WARNING: "WARNING",
    Severity.INFO: "NOTE",
    Severity.OK: "OK",
}
_NOUNS = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("note", "notes"),
    Severity.OK: ("check passed", "checks passed"),
}
#: Lines longer than this are hard to read, however wide the terminal is.
MAX_WIDTH = 100
_INDENT = " " * 9


def print_findings(
    findings: Sequence[Finding], *, json: bool, color: bool | None, file: Any = None
) -> None:
    """Print findings: as JSON, as a table on a terminal, or else as text.

    Args:
        color: False for none; None leaves it to the terminal.
        file: Standard output, unless another is given.
    """
    file = file or sys.stdout
    if json:
        click.echo(as_json(findings), file=file)
    elif color is not False and file.isatty() and find_spec("rich"):
        from celery_sqs_heartbeat.cli.doctor.findings_table import print_table

        print_table(findings, file)
    else:
        click.echo(as_text(findings), file=file, color=color)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as a JSON list."""
    return dumps([finding.as_plain() for finding in findings], indent=2)


def as_text(findings: Sequence[Finding], *, width: int | None = None) -> str:
    """Return the findings as text, with colours; `click.echo` takes them out for a file."""
    width = min(width or shutil.get_terminal_size().columns, MAX_WIDTH)
    blocks = [_block(group, width) for group in grouped(findings)]
    return "\n".join(["\n".join(blocks).rstrip("\n"), "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """Return how many findings of each severity there are, as they are shown: in groups."""
    counts = Counter(group.first.severity for group in grouped(findings))
    parts = [
        f"{counts[severity]} {one if counts[severity] == 1 else many}"
        for severity, (one, many) in _NOUNS.items()
    ]
    return f"{', '.join(parts)}."


def _block(group: Group, width: int) -> str:
    finding = group.first
    label = click.style(f"{LABELS[finding.severity]:<8}", fg=COLORS[finding.severity], bold=True)
    head, *rest = [
        line
        for text in headline(group).splitlines()
        for line in _wrap(text.removeprefix(ITEM), width, ITEM if text.startswith(ITEM) else "")
    ]
    lines = [f"{label} {head.lstrip()}", *rest]
    if finding.severity is Severity.OK:
        return "\n".join(lines)
    lines += _wrap(finding.why, width, "Why: ")
    lines += _wrap(finding.fix, width, "Fix: ")
    lines += [_INDENT + click.style(finding.id, dim=True), ""]
    return "\n".join(lines)


def _wrap(text: str, width: int, label: str = "") -> list[str]:
    """Return the lines of a text behind a label. Names of settings stay whole."""
    if not text:
        return []
    return textwrap.wrap(
        text,
        width,
        initial_indent=_INDENT + label,
        subsequent_indent=_INDENT + " " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
