"""Takes an order from a form and sends its task. Both sites' views are thin covers of it."""

from __future__ import annotations

import logging
import re

from studio import broker, jobs, tasks

logger = logging.getLogger(__name__)

TASKS = {task.__name__: task for task in (tasks.thumbnails, tasks.pdf_report, tasks.csv_totals)}
#: Those that need a file. The others need a size.
WITH_UPLOAD = frozenset({tasks.csv_totals.__name__})
MAX_SIZE = 500
MAX_UPLOAD_BYTES = 10_000_000
#: What is kept of a file's name, in characters: half of it from each end.
NAME_LENGTH = 40


class Refused(Exception):
    """An order that is not taken. Its text is for the customer.

    Attributes:
        status: Of the answer, in HTTP.
    """

    status = 400


class QueueUnreachable(Refused):
    """The order is right, but its message can't be sent."""

    status = 503


def place(kind: str, size: str, upload: bytes = b"", name: str = "") -> jobs.Job:
    """Make a job of a form's fields and queue its task.

    The job is saved before its message is sent, as a worker may begin it at once, and is taken
    back when the send fails. A message that got through nevertheless, because only SQS's answer
    was lost, finds no job and becomes a dead letter. The other order would lose jobs: a site that
    ends after the send has not saved what its customer ordered.

    Args:
        name: Of the uploaded file.

    Raises:
        Refused: A field is wrong; says which.
        QueueUnreachable: The message can't be sent, and nothing is ordered.
    """
    job = _saved(kind, size, upload, name)
    try:
        # No retries of Celery's: botocore has tried again already, and the customer waits.
        TASKS[kind].apply_async((job.id,), retry=False)
    except broker.UNREACHABLE as error:
        job.withdraw()
        logger.warning("studio: queue %s takes no %s: %s", broker.QUEUE, kind, error)
        raise QueueUnreachable(
            "the queue cannot be reached, so nothing was ordered: try again later"
        ) from error
    except BaseException:
        job.withdraw()
        raise
    return job


def _saved(kind: str, size: str, upload: bytes, name: str) -> jobs.Job:
    if kind not in TASKS:
        raise Refused(f"kind must be one of {', '.join(TASKS)}")
    if kind not in WITH_UPLOAD:
        # So short that int() takes it.
        if not size.isdecimal() or len(size) > 9 or not 1 <= int(size) <= MAX_SIZE:
            raise Refused(f"size must be 1 to {MAX_SIZE}")
        return jobs.order(kind, int(size))
    if not upload:
        raise Refused(f"{kind} needs a CSV file with the columns region and amount")
    if len(upload) > MAX_UPLOAD_BYTES:
        raise Refused(f"upload must have at most {MAX_UPLOAD_BYTES} bytes")
    return jobs.order(kind, 1, upload, _short(name))


def _short(name: str) -> str:
    """Return a file's name without its folders, and without what can't be shown."""
    base = re.split(r"[/\\]", name)[-1]
    shown = "".join(letter for letter in base if letter.isprintable())
    half = NAME_LENGTH // 2
    # Names of one series differ at their ends.
    return shown if len(shown) <= NAME_LENGTH else f"{shown[: half - 1]}…{shown[-half:]}"
