"""Shows workers' leases: a table of the workers, one of their tasks, and notes on problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery_sqs_heartbeat.cli.status.page_answers import PageAnswer
from celery_sqs_heartbeat.cli.terminal.shapes import Block, Lines, Style, Styled, Table

_RED, _YELLOW = Style(color="red", bold=True), Style(color="yellow", bold=True)
_STYLES: Mapping[str, Style] = {
    "ok": Style(color="green"),
    "late": _YELLOW,
    "stalled": _YELLOW,
    "unconnected": _YELLOW,
    "deaf": _YELLOW,
    "dead": _RED,
}
#: The meaning of a worker's health if it is not ok.
_MEANINGS = {
    "late": "its keeper is late: leases may expire",
    "stalled": "its event loop is stalled: it neither starts tasks nor settles messages",
    "unconnected": "it is not connected to SQS: it receives no messages",
    "deaf": "SQS can't be reached or refuses its polls: it receives no messages",
    "dead": "its keeper is dead: leases expire",
}
_WORKERS = ("Worker", "Keeper", "In flight", "Running", "Waiting", "Deletes", "Releases", "Oldest")
_TASKS = ("Queue", "Task", "Leases", "Running", "Waiting", "Oldest", "Least left", "Not well")
#: Columns that are shown only if a worker has message groups, or a group that has stopped.
_OF_GROUPS = ("Groups", "Behind", "Stopped")
_STOPPED = ("Queue", "Stopped group", "Task", "Cause", "Receive", "Ago", "Hidden for")


def blocks_of(answers: Sequence[PageAnswer]) -> list[Block]:
    """Return tables of the workers, their tasks and the stopped message groups, then notes.

    Without message groups, which only FIFO queues have, nothing mentions them.
    """
    payloads = [answer.payload for answer in answers if answer.payload is not None]
    has_groups = any(payload["groups"] or payload["stopped_groups"] for payload in payloads)
    of_groups = _OF_GROUPS if has_groups else ()
    workers = [
        [*_worker_row(answer), *(_group_cells(answer.payload) if has_groups else ())]
        for answer in answers
        if answer.payload is not None
    ]
    behind = _OF_GROUPS[1:2] if has_groups else ()
    tasks = [
        [*_task_row(*task), *(_behind_cells(task[1]) if has_groups else ())]
        for task in sorted(_tasks(payloads).items())
    ]
    stopped = [_stopped_row(group) for payload in payloads for group in payload["stopped_groups"]]
    notes = list(_notes(answers))
    blocks: list[Block] = []
    if workers:
        blocks.append(
            Table(columns=(*_WORKERS, *of_groups), rows=workers, numbers=6 + len(of_groups))
        )
    if tasks:
        blocks.append(Table(columns=(*_TASKS, *behind), rows=tasks, numbers=6 + len(behind)))
    if stopped:
        blocks.append(Table(columns=_STOPPED, rows=stopped, numbers=3))
    if notes:
        blocks.append(Lines(notes))
    return blocks


def _notes(answers: Sequence[PageAnswer]) -> Iterator[Styled]:
    for answer in answers:
        if answer.payload is None:
            yield Styled(f"{answer.target}: {answer.fault}", Style(color="red"))
            continue
        name, health = _name(answer), answer.payload["health"]["status"]
        if meaning := _MEANINGS.get(health):
            yield Styled(f"{name}: {meaning}", _STYLES[health])
        if left_out := answer.payload["tasks_left_out"]:
            shown = len(answer.payload["tasks"])
            yield Styled(
                f"{name}: only the {shown:,} tasks with the most leases are shown, of "
                f"{shown + left_out:,}"
            )
        if left_out := answer.payload["stopped_groups_left_out"]:
            shown = len(answer.payload["stopped_groups"])
            yield Styled(
                f"{name}: only the {shown:,} groups that stopped last are shown, of "
                f"{shown + left_out:,}"
            )


def _name(answer: PageAnswer) -> str:
    return str((answer.payload or {}).get("worker") or answer.target.url)


def _worker_row(answer: PageAnswer) -> list[Styled]:
    payload = answer.payload or {}
    health = payload["health"]["status"]
    counts = ("in_flight", "running", "waiting", "pending_deletes", "pending_releases")
    return [
        Styled(_name(answer)),
        Styled(health, _STYLES.get(health, Style())),
        *(_count(payload[name]) for name in counts),
        _seconds(payload["oldest"]),
    ]


def _tasks(payloads: Sequence[Mapping[str, Any]]) -> Mapping[tuple[str, str], list[Any]]:
    """Return the totals for each queue and task, one from each worker with such leases."""
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for payload in payloads:
        for task in payload["tasks"]:
            groups[task["queue"], task["task"] or "unknown"].append(task)
    return groups


def _task_row(names: tuple[str, str], totals: Sequence[Mapping[str, Any]]) -> list[Styled]:
    def total(field: str) -> int:
        return sum(each[field] for each in totals)

    bad = total("not_well")
    return [
        *(Styled(name) for name in names),
        *(_count(total(name)) for name in ("in_flight", "running", "waiting")),
        _seconds(max(each["oldest"] for each in totals)),
        _seconds(min(each["least_left"] for each in totals)),
        Styled(f"{bad:,}", _RED if bad else Style()),
    ]


def _group_cells(payload: Mapping[str, Any]) -> list[Styled]:
    stopped = len(payload["stopped_groups"]) + payload["stopped_groups_left_out"]
    return [
        _count(payload["groups"]),
        _count(payload["behind"]),
        Styled(f"{stopped:,}", _YELLOW if stopped else Style()),
    ]


def _behind_cells(totals: Sequence[Mapping[str, Any]]) -> list[Styled]:
    return [_count(sum(each["behind"] for each in totals))]


def _stopped_row(group: Mapping[str, Any]) -> list[Styled]:
    return [
        Styled(group["queue"]),
        Styled(group["group"] or "unknown"),
        Styled(group["task"] or "unknown"),
        Styled(group["cause"] or "unknown", _YELLOW),
        _count(group["receive_count"]),
        _seconds(group["ago"]),
        _seconds(max(0.0, group["visible_in"])),
    ]


def _count(number: int) -> Styled:
    return Styled(f"{number:,}")


def _seconds(value: float | None) -> Styled:
    return Styled("-" if value is None else f"{value:,.0f} s")
