"""Makes the report of a journal, or of tables that are there."""

from __future__ import annotations

import datetime
import tempfile

from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK, progress_line
from celery_sqs_heartbeat.pipeline.report.data import collect
from celery_sqs_heartbeat.pipeline.report.page import render


def page_of(
    journal: str | None,
    warehouse: str | None,
    first: datetime.date | None,
    last: datetime.date | None,
    engine: str = SPARK,
) -> str:
    """Return the page on the days from first to last. Tables of a journal are temporary.

    Raises:
        PipelineError: There is no such journal, or the engine can't run.
    """
    progress = progress_line()
    progress(f"starting {engine.capitalize()}")
    by = engine_of(engine)
    spark = by.start("sqs-heartbeat report", source=journal or warehouse)
    with tempfile.TemporaryDirectory(prefix="sqs-heartbeat-report-") as folder:
        if journal is not None:
            by.build(spark, journal, folder, first, last, progress=progress)
        page = render(collect(by.warehouse(spark, warehouse or folder), first, last, progress))
    progress("")
    return page
