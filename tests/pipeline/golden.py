"""Makes the attempts of a small journal, for whichever Spark it is started with.

python -m tests.pipeline.golden JOURNAL OUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS
from celery_sqs_heartbeat.pipeline.session import new_session
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.events import events_of, read_lines, rejects_of
from celery_sqs_heartbeat.pipeline.tables.workers import workers_of
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse


def golden(spark: SparkSession, journal: str, warehouse: str) -> list[list[str]]:
    """Return the rows of the rejects and of the attempts, by way of a warehouse, as texts."""
    lines = read_lines(spark, journal)
    events = events_of(lines)
    tables = Warehouse(spark, warehouse)
    tables.write(ATTEMPTS, attempts_of(events, workers_of(events)))
    frames = (rejects_of(lines), tables.read(ATTEMPTS))
    return [sorted(str(tuple(row)) for row in frame.collect()) for frame in frames]


if __name__ == "__main__":
    journal, out = sys.argv[1:]
    session = new_session("golden", {"spark.sql.shuffle.partitions": "1"})
    rows = golden(session, journal, f"{out}.warehouse")
    Path(out).write_text(json.dumps([type(session).__module__, rows]))
    session.stop()
