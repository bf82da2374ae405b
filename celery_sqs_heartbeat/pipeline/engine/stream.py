"""Keeps tables fresh while the journal grows, by Structured Streaming.

The stream is of closed segments, not of their lines: each batch tells which of the journal's
days have something new, and these days are made again from the journal, as the batch job makes
them. So the tables are those of the batch job by construction, whatever a kill interrupted:
a batch that was not finished is begun again, and writing a day twice changes nothing.

The watermark is on the segments, not on the times in them: one that was closed more than
`LATE_DAYS` before the newest is left to the daily job, and the checkpoint forgets which of those
that old it has seen. Until then a late segment has its own days made again, however old its lines
are, and no others: two stretches of days with days between them are made one after the other. A
watermark on the lines' times would trust the workers' clocks: one that is a year ahead would
have everything that follows dropped as late.
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

#: The tables that are kept fresh, besides `events` and `rejects`.
FRESH = (schema.WORKERS, schema.ATTEMPTS, schema.IN_FLIGHT, schema.DUPLICATES)
#: Days that a segment may be closed before the newest one and still be taken in.
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
        checkpoint: Folder or URL where it is kept what was done; of this stream alone.
        every: Seconds between two looks at the journal; None to take in what there is and end.
        tell: Is called with each new duplicate, as a line of JSON.
        lookback: In days, as for `Engine.build`.
        late: In days, the watermark, as the module tells.

    Raises:
        PipelineError: There is no such journal, or one of the places is on S3 and Spark is not.
    """
    refuse_out_of_reach(spark, journal, "journal")
    refuse_out_of_reach(spark, checkpoint, "checkpoint")
    tables = Warehouse(spark, warehouse)
    # That there is one, and its folders are of days.
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

    def take_in(batch: DataFrame, number: int) -> None:
        days = [row["dt"] for row in batch.where("dt IS NOT NULL").distinct().collect()]
        runs = stretches(days)
        for run in runs:
            lines = partial(read_lines, spark, journal)
            refresh(tables, lines, run, lookback=lookback, tables=FRESH)
        if runs:
            written = Days(runs[0].first, runs[-1].last).grown(1, lookback)
            alerts.tell(tables.read(schema.DUPLICATES, written.first, written.last), number)

    writer = segments.writeStream.foreachBatch(take_in)
    writer = writer.option("checkpointLocation", f"{checkpoint}/stream")
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every} seconds").start()
