"""The command `status`: shows the leases and the health on workers' status pages."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import DONE, FOUND, Command, Refusal, epilog

if TYPE_CHECKING:
    from celery_sqs_heartbeat.cli.pages import Page

#: The time between two requests of `--watch`, in seconds.
WATCH_SECONDS = 1.0
#: Escape sequences: go to the first line, and erase to the end of the screen.
_FIRST_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[J"
_OTHER_VERSION = (
    "its worker runs another version of celery-sqs-heartbeat, whose totals this command can't "
    "read: use the same version for both"
)
_RED, _YELLOW = "red", "yellow"
_COLORS = {"ok": "green", "dead": _RED}
#: The meaning of a worker's health if it is not ok.
_MEANINGS = {
    "late": "its keeper is late: leases may expire",
    "stalled": "its event loop is stalled: it neither starts tasks nor settles messages",
    "unconnected": "it is not connected to SQS: it receives no messages",
    "deaf": "SQS can't be reached or refuses its polls: it receives no messages",
    "dead": "its keeper is dead: leases expire",
}
#: The columns from "Groups" and "Behind" on are shown only if a worker has message groups.
_WORKERS = (
    *("Worker", "Keeper", "In flight", "Running", "Waiting", "Deletes", "Releases", "Oldest"),
    *("Groups", "Behind", "Stopped"),
)
_TASKS = (
    *("Queue", "Task", "Leases", "Running", "Waiting", "Oldest", "Least left", "Not well"),
    "Behind",
)
_STOPPED = ("Queue", "Stopped group", "Task", "Cause", "Receive", "Ago", "Hidden for")


@click.command(cls=Command, epilog=epilog("status"))
@click.option(
    "--url",
    "urls",
    multiple=True,
    show_default="the app's sqs_heartbeat_status, else http://127.0.0.1:9808",
    metavar="URL",
    help="A worker's status page.",
)
@click.option(
    "--token",
    envvar="SQS_HEARTBEAT_STATUS_TOKEN",
    show_envvar=True,
    show_default="the app's sqs_heartbeat_status_token",
    help="The pages' token.",
)
@click.option("--watch", is_flag=True, help="Refresh every second, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print the pages' contents as a JSON list.")
@click.pass_context
def status(
    context: click.Context, urls: Sequence[str], token: str | None, watch: bool, as_json: bool
) -> None:
    """Show the leases and the health of workers with a status page (sqs_heartbeat_status)."""
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.cli import pages
    from celery_sqs_heartbeat.settings.address import token_fault

    for url in urls:
        if fault := pages.url_fault(url):
            raise click.BadParameter(fault, param_hint="--url")
    if token is not None and (fault := token_fault(token)):
        raise click.BadParameter(fault, param_hint="--token or SQS_HEARTBEAT_STATUS_TOKEN")
    if watch and as_json:
        raise click.UsageError("--watch draws tables: remove --watch or --json")
    app = context.obj.app
    chosen = [pages.Page(url=url) for url in urls] or [pages.own_page(app)]
    token = pages.own_token(app) if token is None else token
    color = False if context.obj.no_color else None

    def ask() -> list[Page]:
        return [*map(readable, pages.ask_all(chosen, token))]

    if watch:
        keep_drawing(lambda: lines_of(ask()), color=color)
        return
    answers = ask()
    if as_json:
        click.echo(json.dumps([answer.as_plain() for answer in answers], indent=2))
    if not any(answer.payload for answer in answers):
        raise Refusal("; ".join(map(str, answers)))
    if not as_json:
        click.echo("\n".join(lines_of(answers)), color=color)
    context.exit(DONE if all(answer.is_well for answer in answers) else FOUND)


def readable(answer: Page) -> Page:
    """Return an answer. One that can't be shown is that of a worker of another version."""
    try:
        lines_of([answer])
        answer.is_well  # noqa: B018
    except (AttributeError, LookupError, TypeError, ValueError):
        return replace(answer, payload=None, fault=_OTHER_VERSION)
    return answer


def lines_of(answers: Sequence[Page]) -> list[str]:
    """Return tables of the workers, their tasks and the stopped message groups, then notes.

    Without message groups, which only FIFO queues have, nothing mentions them.
    """
    pages = [(answer.name, answer.payload) for answer in answers if answer.payload is not None]
    has_groups = any(page["groups"] or page["stopped_groups"] for _, page in pages)
    by_task: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for _, page in pages:
        for task in page["tasks"]:
            by_task[task["queue"], task["task"] or "unknown"].append(task)
    workers = [_worker(*page) for page in pages]
    tasks = [_task(*task) for task in sorted(by_task.items())]
    stopped = [_stopped(group) for _, page in pages for group in page["stopped_groups"]]
    blocks = [
        table(_WORKERS, workers, numbers=9, left_out=0 if has_groups else 3),
        table(_TASKS, tasks, numbers=7, left_out=0 if has_groups else 1),
        table(_STOPPED, stopped, numbers=3),
        [note.padded() for answer in answers for note in _notes(answer)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block).split("\n")


class Styled(NamedTuple):
    """A text of one line. It may contain names that strangers chose, so it is escaped.

    Attributes:
        color: One of ANSI's eight color names, or "" for the terminal's own. Then it is bold, too.
    """

    text: str
    color: str | None = None

    def padded(self, width: int = 0, *, is_right: bool = False) -> str:
        """Return the text, escaped, with its color."""
        shown = escaped(self.text)
        shown = shown.rjust(width) if is_right else shown.ljust(width)
        return shown if self.color is None else click.style(shown, fg=self.color or None, bold=True)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Styled]], *, numbers: int, left_out: int = 0
) -> list[str]:
    """Return the rows below the names of their columns, or nothing if there are no rows.

    Args:
        numbers: How many of the last columns are numbers.
        left_out: How many of these are not shown.
    """
    names = len(columns) - numbers
    shown = slice(len(columns) - left_out)
    cells = [[Styled(column, "") for column in columns][shown], *(row[shown] for row in rows)]
    widths = [
        max(len(escaped(cell.text)) for cell in column) for column in zip(*cells, strict=True)
    ]
    lines = [
        "  ".join(
            cell.padded(width, is_right=place >= names)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return lines if rows else []


def _worker(name: str, page: Mapping[str, Any]) -> list[Styled]:
    health = page["health"]["status"]
    counts = ("in_flight", "running", "waiting", "pending_deletes", "pending_releases")
    stopped = len(page["stopped_groups"]) + page["stopped_groups_left_out"]
    return [
        Styled(name),
        Styled(health, _COLORS.get(health, _YELLOW)),
        *_counts([page], *counts),
        _seconds(page["oldest"]),
        *_counts([page], "groups", "behind"),
        _bad(stopped, _YELLOW),
    ]


def _task(names: tuple[str, str], totals: Sequence[Mapping[str, Any]]) -> list[Styled]:
    return [
        *map(Styled, names),
        *_counts(totals, "in_flight", "running", "waiting"),
        _seconds(max(each["oldest"] for each in totals)),
        _seconds(min(each["least_left"] for each in totals)),
        _bad(sum(each["not_well"] for each in totals), _RED),
        *_counts(totals, "behind"),
    ]


def _stopped(group: Mapping[str, Any]) -> list[Styled]:
    return [
        Styled(group["queue"]),
        Styled(group["group"] or "unknown"),
        Styled(group["task"] or "unknown"),
        Styled(group["cause"] or "unknown", _YELLOW),
        *_counts([group], "receive_count"),
        _seconds(group["ago"]),
        _seconds(max(0.0, group["visible_in"])),
    ]


def _notes(answer: Page) -> Iterator[Styled]:
    if (page := answer.payload) is None:
        yield Styled(str(answer), _RED)
        return
    health = page["health"]["status"]
    if meaning := _MEANINGS.get(health):
        yield Styled(f"{answer.name}: {meaning}", _COLORS.get(health, _YELLOW))
    for key, which in (
        ("tasks", "tasks with the most leases"),
        ("stopped_groups", "groups that stopped last"),
    ):
        if left_out := page[f"{key}_left_out"]:
            shown = len(page[key])
            yield Styled(
                f"{answer.name}: only the {shown:,} {which} are shown, of {shown + left_out:,}"
            )


def _counts(totals: Sequence[Mapping[str, Any]], *names: str) -> list[Styled]:
    return [Styled(f"{sum(each[name] for each in totals):,}") for name in names]


def _bad(count: int, color: str) -> Styled:
    return Styled(f"{count:,}", color if count else None)


def _seconds(value: float | None) -> Styled:
    return Styled("-" if value is None else f"{value:,.0f} s")


def keep_drawing(draw: Callable[[], Sequence[str]], *, color: bool | None = None) -> None:
    """Draw lines again and again until interrupted, with the color of `click.echo`."""
    is_terminal = sys.stdout.isatty()
    try:
        while True:
            lines = draw()
            if is_terminal:
                # click writes it together with the lines: erasing separately makes them flicker.
                sys.stdout.write(_FIRST_LINE + _REST_OF_SCREEN)
                lines = list(_fitting(lines))
            click.echo("\n".join([*lines, ""]), color=color)
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _fitting(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, or as many as fit on the terminal and a line with the rest's count."""
    width, height = shutil.get_terminal_size()
    # The last two lines are for the count, or an empty line, and the cursor.
    left = height - 2
    for number, line in enumerate(lines):
        left -= max(1, ceil(len(click.unstyle(line)) / width))
        if left < 0:
            yield f"{len(lines) - number} more lines: make the window taller to see them"
            return
        yield line
