"""Measures a journal, or existing tables, for the command `tune`."""

from __future__ import annotations

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.pipeline.engine.engine import Engine
from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, DURATIONS, SURVEYED, WORKERS
from celery_sqs_heartbeat.pipeline.storage.holdings import unread_in
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from celery_sqs_heartbeat.pipeline.tuning.survey import Survey, survey


def survey_source(by: Engine, source: str, *, is_journal: bool | None = None) -> tuple[Survey, str]:
    """Measure the fleet from a warehouse's tables, or from a journal's lines.

    It also returns what could not be read, in words.

    Args:
        is_journal: None if the source is not on this machine. Then it is a warehouse if it has
            tables.

    Raises:
        PipelineError: The source is neither, or the engine can't run.
        FetchError: The source is on S3, and can't be copied.
    """
    spark = by.start("sqs-heartbeat tune", source=source)
    if is_journal is None:
        is_journal = not by.has_tables(spark, source)
    if not is_journal:
        return _survey(by.warehouse(spark, source)), ""
    with by.temporary(spark, source) as made:
        by.build(spark, source, made, tables=(WORKERS, ATTEMPTS, DURATIONS))
        return _survey(made), unread_in(made, Span(), source)


def _survey(warehouse: Warehouse) -> Survey:
    return survey(*(warehouse.read(each) for each in SURVEYED))
