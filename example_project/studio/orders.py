"""Takes an order from a form and sends its task. The views of both sites call it."""

from __future__ import annotations

import logging
import re

from studio import broker, jobs, tasks

logger = logging.getLogger(__name__)

TASKS = {task.__name__: task for task in (tasks.thumbnails, tasks.pdf_report, tasks.csv_totals)}
#: The tasks that need a file. The others need a size.
WITH_UPLOAD = frozenset({tasks.csv_totals.__name__})
MAX_SIZE = 500
MAX_UPLOAD_BYTES = 10_000_000
#: The longest name of a file, in characters. A longer one keeps this half of it from each end.
NAME_LENGTH = 40


class Refused(Exception):
    """An order that is not accepted. Its text is for the customer.

    Attributes:
        status: The HTTP status of the answer.
    """

    status = 400


class QueueUnreachable(Refused):
    """The order is valid, but its message cannot be sent."""

    status = 503


def place(kind: str, size: str, upload: bytes = b"", name: str = "") -> jobs.Job:
    """Save a job from a form's fields, and send its task.

    The job is saved before its message is sent, because a worker may start it at once. If the send
    fails, the job is withdrawn. If only SQS's answer was lost, the message finds no job and becomes
    a dead letter. The other order would lose jobs: if the site died after the send, the customer's
    order would not be saved.

    Args:
        name: The name of the uploaded file.

    Raises:
        Refused: A field is wrong. The error names it.
        QueueUnreachable: The message cannot be sent, and nothing is ordered.
    """
    job = _saved(kind, size, upload, name)
    try:
        # Celery should not retry: botocore already has, and the customer waits.
        TASKS[kind].apply_async((job.id,), retry=False)
    except broker.UNREACHABLE as error:
        job.withdraw()
        logger.warning("studio: queue %s: cannot send %s: %s", broker.QUEUE, kind, error)
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
        # The length keeps int() from failing.
        if not size.isdecimal() or len(size) > 9 or not 1 <= int(size) <= MAX_SIZE:
            raise Refused(f"size must be 1 to {MAX_SIZE}")
        return jobs.order(kind, int(size))
    if not upload:
        raise Refused(f"{kind} needs a CSV file with the columns region and amount")
    if len(upload) > MAX_UPLOAD_BYTES:
        raise Refused(f"upload must have at most {MAX_UPLOAD_BYTES} bytes")
    return jobs.order(kind, 1, upload, _short(name))


def _short(name: str) -> str:
    """Return a file's name without its folders and without unprintable characters."""
    base = re.split(r"[/\\]", name)[-1]
    shown = "".join(letter for letter in base if letter.isprintable())
    half = NAME_LENGTH // 2
    # Names in a series often differ at their ends.
    return shown if len(shown) <= NAME_LENGTH else f"{shown[: half - 1]}…{shown[-half:]}"
