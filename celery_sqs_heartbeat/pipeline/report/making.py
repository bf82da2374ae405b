"""Makes the report of a journal, or of tables that are there."""

from __future__ import annotations

import datetime
import tempfile

from celery_sqs_heartbeat.pipeline.jobs import build
from celery_sqs_heartbeat.pipeline.options import progress_line
from celery_sqs_heartbeat.pipeline.report.data import collect
from celery_sqs_heartbeat.pipeline.report.page import render
from celery_sqs_heartbeat.pipeline.session import new_session
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse


def page_of(
    journal: str | None,
    warehouse: str | None,
    first: datetime.date | None,
    last: datetime.date | None,
) -> str:
    """Return the page on the days from first to last. Tables of a journal are temporary.

    Raises:
        PipelineError: There is no such journal, or Spark can't run.
    """
    progress = progress_line()
    progress("starting Spark")
    spark = new_session("sqs-heartbeat report", source=journal or warehouse)
    with tempfile.TemporaryDirectory(prefix="sqs-heartbeat-report-") as folder:
        if journal is not None:
            build(spark, journal, folder, first, last, progress=progress)
        page = render(collect(Warehouse(spark, warehouse or folder), first, last, progress))
    progress("")
    return page
