"""Small functions on frames that all tables share."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table

#: At most this many rows' keys are broadcast: 8 bytes each, some tens of megabytes in Spark. If
#: there are more, for example if half of a large fleet's messages are received again, both sides
#: are shuffled.
MOST_BROADCAST = 1_000_000
#: More rows than this, such as a large fleet's segments, are no longer a small part of a plan.
MOST_IN_PLAN = 1_000


def day_of(ts: Column) -> Column:
    """Return the UTC day of a time in microseconds. It needs a session in UTC."""
    return F.to_date(F.timestamp_micros(ts))


def us_of(seconds: Column) -> Column:
    """Return whole seconds in microseconds. As an int, a timeout of 36 minutes would overflow."""
    return seconds.cast("bigint") * 1_000_000


def shape(frame: DataFrame, table: Table) -> DataFrame:
    """Return exactly the table's columns, in order and with its types, `dt` last."""
    columns = [F.col(column.name).cast(column.type).alias(column.name) for column in table.columns]
    return frame.select(*columns, F.col(PARTITION).cast("date").alias(PARTITION))


def between(
    frame: DataFrame,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
    day: str = PARTITION,
) -> DataFrame:
    """Return the rows from the first day to the last. None means no limit on that side."""
    if first is not None:
        frame = frame.where(F.col(day) >= F.lit(first))
    if last is not None:
        frame = frame.where(F.col(day) <= F.lit(last))
    return frame


def frame_of(spark: SparkSession, rows: Sequence[Mapping[str, Any]], ddl: str) -> DataFrame:
    """Return a frame of rows. A few are a JSON text in the plan.

    Spark's `createDataFrame` starts a Python process beside the JVM, for two CPU seconds.

    Args:
        rows: Values by column. Keys of maps are texts, and days are `datetime.date`.
        ddl: The columns, in Spark's DDL.
    """
    if len(rows) > MOST_IN_PLAN:
        return spark.createDataFrame(rows, ddl)
    text = F.lit(json.dumps(rows, default=str))
    parsed = F.from_json(text, f"array<struct<{ddl}>>", {"mode": "FAILFAST"})
    frame = spark.range(1).select(F.inline(parsed))
    # Spark leaves out what is joined with a frame that is certainly empty.
    return frame if rows else frame.where(F.lit(False))


def having(rows: DataFrame, column: str, among: DataFrame) -> DataFrame:
    """Return the rows with a value of a column that other rows have; very rarely another row, too.

    Values are compared by a 64-bit hash, and rows without one are not shuffled.

    Args:
        among: The other rows. They are counted, so this must be cheap.
    """
    hashes = among.select(F.xxhash64(column).alias("hash")).distinct()
    if among.count() <= MOST_BROADCAST:
        hashes = F.broadcast(hashes)
    return rows.join(hashes, F.xxhash64(column) == F.col("hash"), "semi")
