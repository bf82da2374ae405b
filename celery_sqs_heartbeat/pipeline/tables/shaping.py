"""Gives a frame the columns of the contract."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table


def day_of(ts: Column) -> Column:
    """Return the UTC day of a time in microseconds. It needs a session in UTC."""
    return F.to_date(F.timestamp_micros(ts))


def shape(frame: DataFrame, table: Table) -> DataFrame:
    """Return exactly the table's columns, in order and with its types, `dt` last."""
    columns = [F.col(column.name).cast(column.type).alias(column.name) for column in table.columns]
    return frame.select(*columns, F.col(PARTITION).cast("date").alias(PARTITION))


def us_of(seconds: Column) -> Column:
    """Return whole seconds in microseconds. As an int, a timeout of 36 minutes would overflow."""
    return seconds.cast("bigint") * 1_000_000
