"""Keeps tables fresh while the journal grows, by Structured Streaming.

The stream consists of closed segments, not of their lines. Each batch shows which of the journal's
days have something new. These days are rebuilt from the journal, like the batch job does. So the
tables are the same as those of the batch job, whatever a kill interrupted: an unfinished batch is
repeated, and writing a day twice changes nothing.

The watermark applies to segments, not to the times in them. A segment that was closed more than
`LATE_DAYS` before the newest is left to the daily job, and the checkpoint forgets the segments that
are older than that. Until then, a late segment causes a rebuild of its own days only, however old
its lines are: two stretches of days with days between them are built one after the other. A
watermark on the lines' times would trust the workers' clocks. If one were a year ahead, all later
lines would be dropped as late.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from celery_sqs_heartbeat.common.days import Days, stretches
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine.alerts import Alerts
from celery_sqs_heartbeat.pipeline.engine.jobs import LOOKBACK_DAYS, refresh
from celery_sqs_heartbeat.pipeline.storage.closed_segments import CLOSED, SCHEMA
from celery_sqs_heartbeat.pipeline.storage.journal_days import journal_days
from celery_sqs_heartbeat.pipeline.storage.line_frames import read_lines
from celery_sqs_heartbeat.pipeline.storage.reach import refuse_out_of_reach, spark_path
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

#: The tables that are kept fresh, in addition to `events` and `rejects`.
FRESH = (schema.WORKERS, schema.ATTEMPTS, schema.IN_FLIGHT, schema.DUPLICATES)
#: A segment that was closed up to this many days before the newest one is still processed.
LATE_DAYS = 30


def start(
    spark: SparkSession,
    journal: str,
    warehouse: str,
    checkpoint: str,
    *,
    every: float | None,
    tell: Callable[[str], None],
    lookback: int = LOOKBACK_DAYS,
    late: int = LATE_DAYS,
) -> StreamingQuery:
    """Start to follow a journal.

    Args:
        checkpoint: Folder or URL for the progress of this stream only.
        every: Seconds between two checks of the journal; None to process what there is and stop.
        tell: Is called with each new duplicate, as a line of JSON.
        lookback: Days, as for `Engine.build`.
        late: The watermark in days, as described above.

    Raises:
        PipelineError: The journal is missing, or Spark can't reach one of the places on S3.
    """
    refuse_out_of_reach(spark, journal, "journal")
    refuse_out_of_reach(spark, checkpoint, "checkpoint")
    tables = Warehouse(spark, warehouse)
    # It checks that the journal exists, and that its folders are valid days.
    journal_days(spark, journal)
    checkpoint = spark_path(checkpoint)
    segments = (
        spark.readStream.format("binaryFile")
        .schema(SCHEMA)
        .option("pathGlobFilter", CLOSED)
        .option("maxFileAge", f"{late}d")
        .load(spark_path(journal))
        .select("dt")
    )
    alerts = Alerts(spark, f"{checkpoint}/alerts", tell)

    def ingest(batch: DataFrame, number: int) -> None:
        days = [row["dt"] for row in batch.where("dt IS NOT NULL").distinct().collect()]
        runs = stretches(days)
        for run in runs:
            lines = partial(read_lines, spark, journal)
            refresh(tables, lines, run, lookback=lookback, tables=FRESH)
        if runs:
            written = Days(runs[0].first, runs[-1].last).grown(1, lookback)
            alerts.tell(tables.read(schema.DUPLICATES, written.first, written.last), number)

    writer = segments.writeStream.foreachBatch(ingest)
    writer = writer.option("checkpointLocation", f"{checkpoint}/stream")
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every} seconds").start()
