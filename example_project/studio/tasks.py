"""The tasks, shared by both sites and their workers. They use neither Django nor Flask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celery import shared_task
from celery_sqs_heartbeat import current_lease

from studio import broker, jobs, pictures, report, totals


@shared_task
def thumbnails(job_id: str) -> None:
    """Draw pictures and their thumbnails."""
    with _result(job_id) as (job, folder):
        pictures.draw_with_thumbnails(job.size, folder)


@shared_task(sqs_heartbeat={"max_lease": 3600})
def pdf_report(job_id: str) -> None:
    """Write a PDF report. After an hour it counts as stuck: its lease is no longer extended."""
    with _result(job_id) as (job, folder):
        report.write_report(job.size, folder / "report.pdf")


@shared_task
def csv_totals(job_id: str) -> None:
    """Add up an uploaded CSV file."""
    with _result(job_id) as (job, folder):
        totals.add_up(job.upload, folder / "totals.csv")


@contextmanager
def _result(job_id: str) -> Iterator[tuple[jobs.Job, Path]]:
    """Yield a job and a folder for its files."""
    job = jobs.get(job_id)
    receive_count = current_lease.receive_count if current_lease else None
    with job.trying(receive_count, broker.max_receives()) as folder:
        yield job, folder
        if current_lease:
            # If another worker has the message by now, the files of this try are discarded.
            current_lease.ensure_valid()
