"""Settings for each queue, with what to expect of them."""

from __future__ import annotations

from dataclasses import asdict

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION, RECOMMENDATIONS
from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of
from celery_sqs_heartbeat.pipeline.tuning.advice import recommend
from celery_sqs_heartbeat.pipeline.tuning.replay import Worth
from celery_sqs_heartbeat.pipeline.tuning.survey import survey


def recommendations_of(
    durations: DataFrame,
    attempts: DataFrame,
    events: DataFrame,
    workers: DataFrame,
    worth: Worth | None = None,
) -> DataFrame:
    """Return the recommended settings, the candidates on the curve, and the current settings.

    The histograms have some thousands of rows. They are collected and replayed on the driver.

    Args:
        worth: The cost of waiting and of duplicates; None for the defaults of `Worth`.
    """
    last = durations.agg(F.max(PARTITION).alias("day")).first()
    if last is None or last.day is None:
        return frame_of(durations.sparkSession, [], RECOMMENDATIONS.ddl)
    found = survey(durations, attempts, events, workers)
    rows = [{**asdict(row), PARTITION: last.day} for row in recommend(found, worth or Worth())]
    return frame_of(durations.sparkSession, rows, RECOMMENDATIONS.ddl)
