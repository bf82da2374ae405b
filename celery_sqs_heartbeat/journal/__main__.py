"""Prints a journal: `python -m celery_sqs_heartbeat.journal JOURNAL`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from celery_sqs_heartbeat.cli.days import check_days, from_option, to_option
from celery_sqs_heartbeat.exits import Command, NothingFound, Refusal, epilog, refusing
from celery_sqs_heartbeat.journal.fetching import fetched
from celery_sqs_heartbeat.journal.layout import day_of
from celery_sqs_heartbeat.journal.printing import text_of
from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.pipeline.checking import check_journal
from celery_sqs_heartbeat.pipeline.days import Span
from celery_sqs_heartbeat.pipeline.kinds import local_folder
from celery_sqs_heartbeat.settings.target import S3

#: A line may be in the folder of the day before its own, or after it.
_AROUND = 1
#: What each line has.
_REQUIRED = {"ts", "seq", "ev", "wid"}


@click.command(
    cls=Command,
    name="python -m celery_sqs_heartbeat.journal",
    epilog=epilog("celery_sqs_heartbeat.journal"),
)
@click.argument("journal")
@click.option("--message", help="Only what concerns this message id, or ids that begin so.")
@click.option("--queue", help="Only this queue, by its name at SQS.")
@click.option("--task", help="Only this task, by its name or its id.")
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
    """Print the lines of JOURNAL by time, those of live workers too.

    It is a folder, or s3://BUCKET/PREFIX, of which the days that are wanted are copied first.
    Exits with 1 when it has no such lines, and with 2 when it is no journal.
    """
    check_days(first, last)
    days = (str(first or datetime.date.min), str(last or datetime.date.max))

    def is_wanted(fields: dict[str, Any]) -> bool:
        return (
            fields.keys() >= _REQUIRED
            and (message is None or str(fields.get("msg", "")).startswith(message))
            and (queue is None or fields.get("queue") == queue)
            and (task is None or task in (fields.get("task"), fields.get("task_id")))
            and days[0] <= day_of(fields["ts"]) <= days[1]
        )

    try:
        with refusing(), _folder_of(journal, first, last) as folder:
            lines = sorted(filter(is_wanted, read_journal(folder)), key=itemgetter("ts", "seq"))
    except OSError as error:
        raise Refusal(f"the journal {journal!r} can't be read: {error}") from None
    if not lines:
        raise NothingFound(f"the journal {journal!r} has no such lines")
    for fields in lines:
        click.echo(text_of(fields))


@contextmanager
def _folder_of(
    journal: str, first: datetime.date | None, last: datetime.date | None
) -> Iterator[Path]:
    if journal.startswith(S3):
        with fetched(journal, first, last, _AROUND) as copy:
            yield copy
        return
    # All of it is read, whatever days are wanted.
    check_journal(journal, Span(), is_here=True)
    if (folder := local_folder(journal)) is None:
        raise Refusal(f"the journal {journal!r} is a URL: give a folder, or s3://BUCKET/PREFIX")
    yield folder


if __name__ == "__main__":
    main()
