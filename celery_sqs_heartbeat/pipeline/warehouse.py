"""Keeps the tables: Parquet, a folder for each table and day."""

from __future__ import annotations

import datetime
import re

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table

_DAY = re.compile(rf"/{PARTITION}=(\d{{4}}-\d\d-\d\d)/")


class Warehouse:
    """The tables below one path: a folder, or whatever Spark can write to, as `s3a://`."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")

    def write(
        self,
        table: Table,
        frame: DataFrame,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> None:
        """Replace the days that the frame has rows of, and leave the others as they are.

        Args:
            first: With `last`, days that the frame is all there is of: one that it has no
                rows of is emptied.
        """
        before = self._files_by_day(table)
        # Rebalancing makes few files of a small day and several of a large one.
        (
            frame.hint("rebalance", F.col(PARTITION))
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("compression", "zstd")
            .partitionBy(PARTITION)
            .parquet(self._folder(table))
        )
        if first is None or last is None or not before:
            return
        after = self._files_by_day(table)
        for day, files in before.items():
            if first <= day <= last and after.get(day) == files:
                self._empty(table, day)

    def read(
        self,
        table: Table,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> DataFrame:
        """Return the table's rows from the first day to the last; none if there is no table."""
        try:
            frame = self._spark.read.schema(table.ddl).parquet(self._folder(table))
            # Where Spark is remote, a missing folder shows only when it is asked.
            frame.schema  # noqa: B018
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self._spark.createDataFrame([], table.ddl)
        return between(frame, first, last)

    def _folder(self, table: Table) -> str:
        return f"{self._path}/{table.name}"

    def _files_by_day(self, table: Table) -> dict[datetime.date, set[str]]:
        files: dict[datetime.date, set[str]] = {}
        for file in self.read(table).inputFiles():
            if match := _DAY.search(file):
                files.setdefault(datetime.date.fromisoformat(match[1]), set()).add(file)
        return files

    def _empty(self, table: Table, day: datetime.date) -> None:
        nothing = self._spark.createDataFrame([], table.ddl).drop(PARTITION)
        nothing.write.mode("overwrite").parquet(f"{self._folder(table)}/{PARTITION}={day}")


def between(
    frame: DataFrame, first: datetime.date | None = None, last: datetime.date | None = None
) -> DataFrame:
    """Return the rows from the first day to the last."""
    if first is not None:
        frame = frame.where(F.col(PARTITION) >= F.lit(first))
    if last is not None:
        frame = frame.where(F.col(PARTITION) <= F.lit(last))
    return frame
