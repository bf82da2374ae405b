"""Makes tables of a small journal, with the Spark that it is started with.

python -m tests.pipeline.golden JOURNAL OUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engine.session import new_session
from celery_sqs_heartbeat.pipeline.schema import EVENTS, WORKERS
from celery_sqs_heartbeat.pipeline.storage.line_frames import read_lines
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from celery_sqs_heartbeat.pipeline.tables.events import events_of
from celery_sqs_heartbeat.pipeline.tables.rejects import rejects_of
from celery_sqs_heartbeat.pipeline.tables.workers import workers_of


def golden(spark: SparkSession, journal: str, warehouse: str) -> list[list[str]]:
    """Return the rows of the rejects, and by way of a warehouse of events and workers, as texts."""
    lines = read_lines(spark, journal)
    tables = Warehouse(spark, warehouse)
    tables.write(EVENTS, events_of(lines))
    tables.write(WORKERS, workers_of(tables.read(EVENTS)))
    frames = (rejects_of(lines), tables.read(EVENTS), tables.read(WORKERS))
    return [sorted(str(tuple(row)) for row in frame.collect()) for frame in frames]


if __name__ == "__main__":
    journal, out = sys.argv[1:]
    session = new_session("golden", {"spark.sql.shuffle.partitions": "1"})
    rows = golden(session, journal, f"{out}.warehouse")
    Path(out).write_text(json.dumps([type(session).__module__, rows]))
    session.stop()
