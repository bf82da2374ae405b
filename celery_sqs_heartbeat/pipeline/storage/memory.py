"""Keeps the tables of a small journal in Spark's memory, while a report is made.

Writing a few thousand rows as Parquet and reading them again takes longer than making them.
"""

from __future__ import annotations

import datetime

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline.schema import Table
from celery_sqs_heartbeat.pipeline.storage.kept_frames import FrameCache
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse, between


class MemoryWarehouse(Warehouse):
    """Tables that exist as long as the object does. Each is written as a whole."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark, "memory")
        self._tables: dict[Table, DataFrame] = {}

    def kept(self) -> FrameCache:
        """Return the keeper of frames for writing one table."""
        return _Computed()

    def held(self, lines: DataFrame) -> DataFrame:
        """Return the journal's lines, read once."""
        return _computed(lines)

    def write(
        self,
        table: Table,
        frame: DataFrame,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> None:
        """Replace the table, whatever days it had."""
        del first, last
        self._tables[table] = _computed(frame.coalesce(1))

    def read(
        self,
        table: Table,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> DataFrame:
        """Return the table's rows from the first day to the last; none if it was not written."""
        rows = self._tables.get(table)
        return self.nothing(table) if rows is None else between(rows, first, last)

    def has_rows(self, table: Table) -> bool:
        """Return whether a table has a row."""
        return table in self._tables and not self._tables[table].isEmpty()


class _Computed(FrameCache):
    def keep(self, frame: DataFrame) -> DataFrame:
        """Return a frame that was computed at once, and whose plan is only its rows."""
        return _computed(frame.coalesce(1))


def _computed(frame: DataFrame) -> DataFrame:
    # Unlike `persist`, it compiles nothing, and later plans do not contain the frame's plan.
    return frame.localCheckpoint()
