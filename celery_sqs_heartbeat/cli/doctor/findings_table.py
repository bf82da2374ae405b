"""Shows findings as a table on a terminal, where rich is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Severity
from celery_sqs_heartbeat.cli.doctor.finding_groups import Group, grouped, headline
from celery_sqs_heartbeat.cli.doctor.presentation import COLORS, LABELS, MAX_WIDTH, summary


def print_table(findings: Sequence[Finding], file: Any) -> None:
    """Print a table of the findings, and a line that counts them."""
    console = Console(file=file)
    table = Table(box=SIMPLE_HEAD, width=min(console.width, MAX_WIDTH), show_lines=False)
    table.add_column("", no_wrap=True)
    table.add_column("What was found")
    table.add_column("Id", no_wrap=True, style="dim")
    for group in grouped(findings):
        finding = group.first
        color = COLORS[finding.severity]
        label = Text(LABELS[finding.severity], style=f"bold {color}")
        table.add_row(label, _text(group), finding.id)
    console.print(table)
    console.print(Text(summary(findings)))


def _text(group: Group) -> Text:
    finding = group.first
    text = Text(headline(group), style="default")
    if finding.severity is Severity.OK:
        return text
    text.stylize("bold")
    text.append(f"\n{finding.why}", style="not bold")
    if finding.fix:
        text.append("\nFix: ", style="not bold green")
        text.append(finding.fix, style="not bold")
    return text.append("\n")
