"""Takes an order from a form and sends its task. Both sites' views are thin covers of it."""

from __future__ import annotations

from studio import jobs, tasks

TASKS = {task.__name__: task for task in (tasks.thumbnails, tasks.pdf_report, tasks.csv_totals)}
#: Those that need a file.
WITH_UPLOAD = frozenset({tasks.csv_totals.__name__})
MAX_SIZE = 500
MAX_UPLOAD_BYTES = 10_000_000


def place(kind: str, size: str, upload: bytes = b"") -> jobs.Job:
    """Make a job of a form's fields and queue its task.

    Raises:
        ValueError: A field is wrong; says which.
    """
    if kind not in TASKS:
        raise ValueError(f"kind must be one of {', '.join(TASKS)}")
    if not size.isdecimal() or not 1 <= int(size) <= MAX_SIZE:
        raise ValueError(f"size must be 1 to {MAX_SIZE}")
    if kind in WITH_UPLOAD and not upload:
        raise ValueError(f"{kind} needs a CSV file with the columns region and amount")
    if len(upload) > MAX_UPLOAD_BYTES:
        raise ValueError(f"upload must have at most {MAX_UPLOAD_BYTES} bytes")
    job = jobs.order(kind, int(size), upload)
    TASKS[kind].delay(job.id)
    return job
