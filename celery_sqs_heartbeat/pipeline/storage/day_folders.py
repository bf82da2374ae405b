"""The folders `dt=YYYY-MM-DD` of tables and journals, from the paths of their files."""

from __future__ import annotations

import datetime
import re

from celery_sqs_heartbeat.journal.checking import date_of, no_day_text
from celery_sqs_heartbeat.pipeline.errors import PipelineError

#: A file in a day's folder of a table, or in a worker's folder of a journal.
_FILE = re.compile(r"/dt=(\d{4}-\d\d-\d\d)/(?:worker=[^/]*/)?[^/]*$")


def day_of_file(path: str) -> datetime.date | None:
    """Return the day whose folder a file is in; None if it is in none.

    Raises:
        PipelineError: The folder's name is not a valid day.
    """
    match = _FILE.search(path)
    if match is None:
        return None
    try:
        return date_of(match[1])
    except ValueError as error:
        raise PipelineError(f"{path!r} {error}") from None


def no_day(path: str, day: str) -> PipelineError:
    """Return the error about a path with a folder that is not a valid day."""
    return PipelineError(f"{path!r} {no_day_text(day)}")
