"""Prints a journal: `python -m celery_sqs_heartbeat.journal JOURNAL`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from celery_sqs_heartbeat.common.days import Span, check_days, from_option, to_option
from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import Command, NothingFound, Refusal, epilog, refusing
from celery_sqs_heartbeat.journal.checking import check_given, check_journal, local_folder
from celery_sqs_heartbeat.journal.folder import day_of
from celery_sqs_heartbeat.journal.reading import Unread, fetched, is_event, read_segments
from celery_sqs_heartbeat.settings.address import S3

_MICROSECONDS = 1_000_000
#: Fields that are printed in words, or that the worker's other lines show.
_HEAD = frozenset({"v", "ts", "mono", "seq", "ev", "wid", "queue", "msg", "dlv", "task", "task_id"})
#: A line may be in the folder of the day before or after its own.
_AROUND = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which lines to print. None stands for any."""

    message: str | None
    queue: str | None
    task: str | None
    span: Span

    def __contains__(self, fields: dict[str, Any]) -> bool:
        return (
            (self.message is None or str(fields.get("msg", "")).startswith(self.message))
            and (self.queue is None or fields.get("queue") == self.queue)
            and (self.task is None or self.task in (fields.get("task"), fields.get("task_id")))
            and datetime.date.fromisoformat(day_of(fields["ts"])) in self.span
        )

    def __str__(self) -> str:
        given = (("message", self.message), ("queue", self.queue), ("task", self.task))
        named = ", ".join(f"{name} {value!r}" for name, value in given if value is not None)
        return " ".join(filter(None, [named and f"of {named}", str(self.span)]))


@click.command(
    cls=Command,
    name="python -m celery_sqs_heartbeat.journal",
    epilog=epilog("celery_sqs_heartbeat.journal"),
)
@click.argument("journal")
@click.option("--message", help="Only lines of this message id, or of ids that start with it.")
@click.option("--queue", help="Only lines of this queue, by its name on SQS.")
@click.option("--task", help="Only lines of this task, by its name or its id.")
@from_option
@to_option
def main(
    journal: str,
    message: str | None,
    queue: str | None,
    task: str | None,
    first: datetime.date | None,
    last: datetime.date | None,
) -> None:
    """Print the lines of JOURNAL in order of time, including those of running workers.

    JOURNAL is a folder, or s3://BUCKET/PREFIX: then the requested days are copied first. One line
    on standard error counts what could not be read. Exits with 2 if nothing can be read, or if it
    is not a journal.
    """
    check_days(first, last)
    wanted = _Wanted(message=message, queue=queue, task=task, span=Span(first, last))
    unread, count, lines = Unread(), 0, []
    try:
        with refusing(), _folder_of(journal, first, last) as folder:
            for path, fields in read_segments(folder, unread):
                if not is_event(fields):
                    unread.note_line(path)
                    continue
                count += 1
                if fields in wanted:
                    lines.append(fields)
    except OSError as error:
        raise Refusal(f"the journal {journal!r} can't be read: {error}") from None
    if unread and not count:
        raise Refusal(
            f"nothing of the journal {journal!r} can be read: {unread}; give the "
            "value of sqs_heartbeat_journal"
        )
    if not lines:
        more = f"; {unread} of it could not be read" if unread else ""
        raise NothingFound(f"the journal {journal!r} has no lines {wanted}".rstrip() + more)
    for fields in sorted(lines, key=itemgetter("ts", "seq")):
        click.echo(text_of(fields))
    if unread:
        click.echo(
            f"Warning: {unread} of the journal {journal!r} could not be read, the first in "
            f"{unread.first and unread.first.relative_to(folder)}",
            err=True,
        )


@contextmanager
def _folder_of(
    journal: str, first: datetime.date | None, last: datetime.date | None
) -> Iterator[Path]:
    if journal.startswith(S3):
        with fetched(journal, first, last, _AROUND) as copy:
            yield copy
        return
    check_given(journal)
    if (folder := local_folder(journal)) is None:
        raise Refusal(f"the journal {journal!r} is a URL: give a folder, or s3://BUCKET/PREFIX")
    # All of it is read, whatever days are requested.
    check_journal(folder, journal, Span())
    yield folder


def text_of(fields: dict[str, Any]) -> str:
    """Return one line of text: time in UTC, event, message, task and the other fields."""
    at = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(
        microseconds=fields["ts"]
    )
    line = "  ".join(
        part
        for part in (
            f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}Z",
            f"{fields['ev']:18}",
            _message(fields),
            ", ".join(_facts(fields)),
            f"worker {fields['wid']} #{fields['seq']}",
        )
        if part
    )
    return escaped(line)


def _message(fields: dict[str, Any]) -> str:
    if "msg" not in fields:
        return ""
    return (
        f"{fields['msg']} of {fields.get('queue', '-')}, "
        f"task {fields.get('task', '-')}[{fields.get('task_id', '-')}]"
    )


def _facts(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if name in _HEAD:
            continue
        if name in ("sent", "first"):
            yield f"{name} {(fields['ts'] - value) / _MICROSECONDS:.3f} s before"
        elif name.endswith("_us"):
            yield f"{name.removesuffix('_us')} {value / _MICROSECONDS:.3f} s"
        elif isinstance(value, dict):
            yield f"{name} " + " ".join(f"{key}={each}" for key, each in value.items())
        else:
            yield f"{name} {value}"


if __name__ == "__main__":
    main()
