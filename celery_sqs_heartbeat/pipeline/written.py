"""Tells what a warehouse holds."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.days import Days
from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION, TABLES
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

Rows = Mapping[tuple[str, datetime.date], int]


def written(warehouse: Warehouse, days: Days) -> Rows:
    """Return the number of rows of each table and day."""
    counts: dict[tuple[str, datetime.date], int] = {}
    for table in TABLES.values():
        frame = warehouse.read(table, days.first, days.last)
        for row in frame.groupBy(PARTITION).agg(F.count("*").alias("rows")).collect():
            counts[table.name, row[PARTITION]] = row["rows"]
    return counts


def has_events(rows: Rows, days: Days) -> bool:
    """Return whether there is an event of these days, or of those beside them."""
    return any(rows.get((EVENTS.name, day)) for day in days.grown(1, 1))


def text_of(rows: Rows) -> str:
    """Return them as a table for people: a line for each table, a column for each day."""
    days = sorted({day for _, day in rows})
    lines = ["".join([f"{'rows':<16}", *(f"{day!s:>13}" for day in days)])]
    for table in TABLES:
        counts = (rows.get((table, day), 0) for day in days)
        lines.append("".join([f"{table:<16}", *(f"{count:>13,}" for count in counts)]))
    return "\n".join(lines)
