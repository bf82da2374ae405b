"""Shows what workers hold as lines of text: a table of the workers, one of their tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from celery_sqs_heartbeat.cli.status.columns import Cell, table
from celery_sqs_heartbeat.cli.status.page_answers import PageAnswer
from celery_sqs_heartbeat.common.escaping import escaped

_RED, _YELLOW = {"fg": "red", "bold": True}, {"fg": "yellow", "bold": True}
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "ok": {"fg": "green"},
    "late": _YELLOW,
    "deaf": _YELLOW,
    "dead": _RED,
}
#: What a worker's health means where it is not ok.
_MEANINGS = {
    "late": "its keeper is late: leases are in danger",
    "deaf": "SQS does not answer its polls: no messages come",
    "dead": "its keeper is dead: leases run out",
}
_WORKERS = ("Worker", "Keeper", "In flight", "Running", "Waiting", "Deletes", "Releases", "Oldest")
_TASKS = ("Queue", "Task", "Leases", "Running", "Waiting", "Oldest", "Least left", "Not well")


def lines_of(answers: Sequence[PageAnswer], width: int | None = None) -> list[str]:
    """Return the lines that show the workers, their tasks, and what needs a look.

    Args:
        width: Names are shortened where lines would be longer; None for no limit.
    """
    payloads = [answer.payload for answer in answers if answer.payload is not None]
    workers = [_worker_row(answer) for answer in answers if answer.payload is not None]
    tasks = [_task_row(*task) for task in sorted(_tasks(payloads).items())]
    lines = table(_WORKERS, workers, numbers=6, width=width) if workers else []
    if tasks:
        lines += ["", *table(_TASKS, tasks, numbers=6, width=width)]
    notes = list(_notes(answers))
    return [*lines, *([""] if lines and notes else []), *notes]


def _notes(answers: Sequence[PageAnswer]) -> Iterator[str]:
    for answer in answers:
        if answer.payload is None:
            yield click.style(escaped(f"{answer.target}: {answer.fault}"), fg="red")
            continue
        name, health = _name(answer), answer.payload["health"]["status"]
        if meaning := _MEANINGS.get(health):
            yield click.style(f"{escaped(name)}: {meaning}", **_STYLES[health])
        if left_out := answer.payload["tasks_left_out"]:
            shown = len(answer.payload["tasks"])
            yield escaped(
                f"{name}: the {shown:,} tasks with the most leases are shown, {left_out:,} are not"
            )


def _name(answer: PageAnswer) -> str:
    return str((answer.payload or {}).get("worker") or answer.target.url)


def _worker_row(answer: PageAnswer) -> list[Cell]:
    payload = answer.payload or {}
    health = payload["health"]["status"]
    counts = ("in_flight", "running", "waiting", "pending_deletes", "pending_releases")
    return [
        Cell(text=_name(answer)),
        Cell(text=health, style=_STYLES.get(health, {})),
        *(_count(payload[name]) for name in counts),
        _seconds(payload["oldest"]),
    ]


def _tasks(payloads: Sequence[Mapping[str, Any]]) -> Mapping[tuple[str, str], list[Any]]:
    """Return the totals of each task of a queue, from each worker that has any."""
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for payload in payloads:
        for task in payload["tasks"]:
            groups[task["queue"], task["task"] or "unknown"].append(task)
    return groups


def _task_row(names: tuple[str, str], totals: Sequence[Mapping[str, Any]]) -> list[Cell]:
    def total(field: str) -> int:
        return sum(each[field] for each in totals)

    bad = total("not_well")
    return [
        *(Cell(text=name) for name in names),
        *(_count(total(name)) for name in ("in_flight", "running", "waiting")),
        _seconds(max(each["oldest"] for each in totals)),
        _seconds(min(each["least_left"] for each in totals)),
        Cell(text=f"{bad:,}", style=_RED if bad else {}),
    ]


def _count(number: int) -> Cell:
    return Cell(text=f"{number:,}")


def _seconds(value: float | None) -> Cell:
    return Cell(text="-" if value is None else f"{value:,.0f} s")
