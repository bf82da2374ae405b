"""Draws the leases of workers on a terminal. Needs rich."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from celery_sqs_heartbeat.cli.pages import PageAnswer
from celery_sqs_heartbeat.escaping import escaped

_STYLES = {"ok": "green", "late": "bold yellow", "deaf": "bold yellow", "dead": "bold red"}
_BAD = ("expired", "lost", "capped", "unleased")


def print_tables(answers: Sequence[PageAnswer], console: Console | None = None) -> None:
    """Print the workers and their leases."""
    (console or Console()).print(tables(answers))


def watch_tables(ask: Callable[[], Sequence[PageAnswer]], pause: float) -> None:
    """Draw the tables again and again, with so many seconds between, until interrupted."""
    try:
        with Live(tables(ask()), auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(pause)
                live.update(tables(ask()), refresh=True)
    except KeyboardInterrupt:
        return


def tables(answers: Sequence[PageAnswer]) -> Group:
    """Return a table of the workers and one of their leases by queue and task."""
    return Group(_workers(answers), _leases(answers))


def _workers(answers: Sequence[PageAnswer]) -> Table:
    table = _table("Worker", "Keeper", "In flight", "Deletes", "Releases", "Oldest", numbers=4)
    for answer in answers:
        if answer.payload is None:
            table.add_row(_text(answer.url), _text(answer.fault, "red"))
            continue
        told = answer.payload
        health = told["health"]["status"]
        table.add_row(
            _text(told["worker"] or answer.url),
            _text(health, _STYLES.get(health, "")),
            str(told["in_flight"]),
            str(told["pending_deletes"]),
            str(told["pending_releases"]),
            _seconds(told["oldest"]),
        )
    return table


def _leases(answers: Sequence[PageAnswer]) -> Table:
    table = _table("Queue", "Task", "Leases", "Oldest", "Least left", "Not well", numbers=4)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for answer in answers:
        for lease in (answer.payload or {}).get("leases", ()):
            groups[lease["queue"], lease["task"] or "unknown"].append(lease)
    for (queue, task), leases in sorted(groups.items()):
        bad = sum(lease["standing"] in _BAD for lease in leases)
        table.add_row(
            _text(queue),
            _text(task),
            str(len(leases)),
            _seconds(max(lease["held_for"] for lease in leases)),
            _seconds(min(lease["expires_in"] for lease in leases)),
            Text(str(bad), "bold red" if bad else ""),
        )
    return table


def _table(*columns: str, numbers: int) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for place, column in enumerate(columns):
        is_number = place >= len(columns) - numbers
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number)
    return table


def _text(text: str, style: str = "") -> Text:
    return Text(escaped(text), style)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"
