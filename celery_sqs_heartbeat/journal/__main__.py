"""Prints a journal: `python -m celery_sqs_heartbeat.journal FOLDER`."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.journal.packing import require_zstandard
from celery_sqs_heartbeat.journal.printing import text_of
from celery_sqs_heartbeat.journal.reading import read_journal


@click.command(name="python -m celery_sqs_heartbeat.journal")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--message", help="Only what concerns this message id, or ids that begin so.")
@click.option("--queue", help="Only this queue, by its name at SQS.")
@click.option("--task", help="Only this task, by its name or its id.")
def main(folder: Path, message: str | None, queue: str | None, task: str | None) -> None:
    """Print the lines of the journal in FOLDER by time, those of live workers too."""
    try:
        require_zstandard()
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None

    def is_wanted(fields: dict[str, Any]) -> bool:
        return (
            (message is None or str(fields.get("msg", "")).startswith(message))
            and (queue is None or fields.get("queue") == queue)
            and (task is None or task in (fields.get("task"), fields.get("task_id")))
        )

    for fields in sorted(filter(is_wanted, read_journal(folder)), key=itemgetter("ts", "seq")):
        click.echo(text_of(fields))


if __name__ == "__main__":
    main()
