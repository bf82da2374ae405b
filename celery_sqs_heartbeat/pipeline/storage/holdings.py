"""Counts the rows of a warehouse, and checks whether a run has read anything."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Days, Span
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION, REJECTS, TABLES
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

#: A smaller share is shown as less than this.
_LEAST_SHARE = 0.001

Rows = Mapping[tuple[str, datetime.date], int]


def written(warehouse: Warehouse, days: Days) -> Rows:
    """Return the number of rows of each table and day."""
    counts: dict[tuple[str, datetime.date], int] = {}
    for table in TABLES.values():
        frame = warehouse.read(table, days.first, days.last)
        for row in frame.groupBy(PARTITION).agg(F.count("*").alias("rows")).collect():
            counts[table.name, row[PARTITION]] = row["rows"]
    return counts


def refuse_unreadable(warehouse: Warehouse, days: Days, journal: str) -> None:
    """Refuse a journal from which no event was read.

    Raises:
        PipelineError: None of its lines is an event.
    """
    around = days.grown(1, 1)
    rejects = warehouse.read(REJECTS, days.first, days.last)
    # Few journals have rejects. Without rejects, no file has to be read.
    if (
        not warehouse.has_rows(REJECTS)
        or not warehouse.read(EVENTS, around.first, around.last).isEmpty()
    ):
        return
    if found := _by_reason(rejects)[1]:
        raise PipelineError(
            f"nothing of the journal {journal!r} can be read {Span(days.first, days.last)} "
            f"({found}): give the value of sqs_heartbeat_journal"
        )


def unread_in(warehouse: Warehouse, days: Days | Span, journal: str) -> str:
    """Return the share of a journal's lines that could not be read; empty if all could be."""
    # Few journals have rejects. Without rejects, no file has to be read.
    if not warehouse.has_rows(REJECTS):
        return ""
    lost, found = _by_reason(warehouse.read(REJECTS, days.first, days.last))
    if not lost:
        return ""
    share = lost / (lost + warehouse.read(EVENTS, days.first, days.last).count())
    part = f"{share:.1%}" if share >= _LEAST_SHARE else f"less than {_LEAST_SHARE:.1%}"
    return (
        f"{part} of the lines of {journal!r} could not be read ({found}); the rest was. The table "
        "rejects and the report's last section name the files"
    )


def _by_reason(rejects: DataFrame) -> tuple[int, str]:
    """Return how many lines could not be read, and how many by reason."""
    sums = rejects.groupBy("reason").agg(F.sum("lines").alias("lines")).orderBy("reason").collect()
    found = ", ".join(f"{row['reason']}: {row['lines']:,}" for row in sums)
    return sum(row["lines"] for row in sums), found


def has_messages(warehouse: Warehouse, days: Days) -> bool:
    """Return whether there is an event of a message on these days, or on the days beside them."""
    around = days.grown(1, 1)
    events = warehouse.read(EVENTS, around.first, around.last)
    return not events.where(F.col("msg").isNotNull()).isEmpty()


def text_of(rows: Rows) -> str:
    """Return the numbers as a text table: a line for each table, a column for each day."""
    days = sorted({day for _, day in rows})
    lines = ["".join([f"{'rows':<16}", *(f"{day!s:>13}" for day in days)])]
    for table in TABLES:
        counts = (rows.get((table, day), 0) for day in days)
        lines.append("".join([f"{table:<16}", *(f"{count:>13,}" for count in counts)]))
    return "\n".join(lines)
