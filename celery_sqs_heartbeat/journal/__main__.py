"""Prints a journal: `python -m celery_sqs_heartbeat.journal JOURNAL`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from celery_sqs_heartbeat.common.days import Span, check_days, from_option, to_option
from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import Command, NothingFound, Refusal, epilog, refusing
from celery_sqs_heartbeat.journal.checking import check_given, check_journal, local_folder
from celery_sqs_heartbeat.journal.reading import Unread, fetched, read_segments
from celery_sqs_heartbeat.settings.address import S3

_MICROSECONDS = 1_000_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
#: Fields that are printed in words, or that the worker's other lines show.
_HEAD = frozenset({"v", "ts", "mono", "seq", "ev", "wid", "queue", "msg", "dlv", "task", "task_id"})
#: The errors of a line whose fields are not those of an event.
_NO_EVENT = (KeyError, TypeError, ValueError, OverflowError)
#: Whether a line's fields match the value of an option.
_MATCHES: dict[str, Callable[[dict[str, Any], str], bool]] = {
    "message": lambda fields, value: str(fields.get("msg", "")).startswith(value),
    "queue": lambda fields, value: fields.get("queue") == value,
    "task": lambda fields, value: value in (fields.get("task"), fields.get("task_id")),
}


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
    journal: str, first: datetime.date | None, last: datetime.date | None, **options: str | None
) -> None:
    """Print the lines of JOURNAL in order of time, including those of running workers.

    JOURNAL is a folder, or s3://BUCKET/PREFIX: then the requested days are copied first. One line
    on standard error counts what could not be read. Exits with 2 if nothing can be read, or if it
    is not a journal.
    """
    check_days(first, last)
    span = Span(first, last)
    wanted = {name: value for name, value in options.items() if value is not None}
    unread, count, found = Unread(), 0, []
    try:
        with refusing(), _folder_of(journal, span) as folder:
            for path, fields in read_segments(folder, unread):
                try:
                    is_wanted = all(_MATCHES[name](fields, wanted[name]) for name in wanted)
                    if _time_of(fields).date() in span and is_wanted:
                        found.append((fields["ts"], text_of(fields)))
                    count += 1
                except _NO_EVENT:
                    unread.note("line", path)
    except OSError as error:
        raise Refusal(f"the journal {journal!r} can't be read: {error}") from None
    if unread.first and not count:
        raise Refusal(
            f"nothing of the journal {journal!r} can be read: {unread}; give the "
            "value of sqs_heartbeat_journal"
        )
    if not found:
        named = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
        limits = " ".join(filter(None, [named and f"of {named}", str(span)]))
        more = f"; {unread} of it could not be read" if unread.first else ""
        raise NothingFound(f"the journal {journal!r} has no lines {limits}".rstrip() + more)
    # Those of a worker are in order already.
    for _, text in sorted(found, key=itemgetter(0)):
        click.echo(text)
    if unread.first:
        click.echo(
            f"Warning: {unread} of the journal {journal!r} could not be read, the first in "
            f"{unread.first.relative_to(folder)}",
            err=True,
        )


@contextmanager
def _folder_of(journal: str, span: Span) -> Iterator[Path]:
    if journal.startswith(S3):
        # A line may be in the folder of the day before or after its own.
        with fetched(journal, span.grown(1)) as copy:
            yield copy
        return
    check_given(journal)
    if (folder := local_folder(journal)) is None:
        raise Refusal(f"the journal {journal!r} is a URL: give a folder, or s3://BUCKET/PREFIX")
    # All of it is read, whatever days are requested.
    check_journal(folder, journal, Span())
    yield folder


def _time_of(fields: dict[str, Any]) -> datetime.datetime:
    """Return the time of an event.

    Raises:
        Exception: One of the errors of `_NO_EVENT`.
    """
    return _EPOCH + datetime.timedelta(microseconds=fields["ts"])


def text_of(fields: dict[str, Any]) -> str:
    """Return one line of text: time in UTC, event, message, task and the other fields.

    Raises:
        Exception: One of the errors of `_NO_EVENT`.
    """
    at, message = _time_of(fields), ""
    if "msg" in fields:
        queue, task, task_id = (fields.get(name, "-") for name in ("queue", "task", "task_id"))
        message = f"{fields['msg']} of {queue}, task {task}[{task_id}]"
    parts = (
        f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}Z",
        f"{fields['ev']:18}",
        message,
        ", ".join(_facts(fields)),
        f"worker {fields['wid']} #{fields['seq']}",
    )
    return escaped("  ".join(filter(None, parts)))


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
