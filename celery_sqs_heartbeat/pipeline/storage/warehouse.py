"""Stores the tables as Parquet, with a folder for each table and day."""

from __future__ import annotations

import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.kept_frames import FrameCache
from celery_sqs_heartbeat.pipeline.storage.reach import refuse_out_of_reach, spark_path
from celery_sqs_heartbeat.pipeline.storage.small_frames import frame_of

#: Text columns whose values hardly ever repeat.
_UNIQUE_TEXTS = ("msg", "dlv", "task_id", "evidence")


class Warehouse:
    """The tables in one place: a folder, or a URL that Spark can write to, such as `s3a://`.

    Raises:
        PipelineError: The place is on S3, and Spark is on this machine.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        refuse_out_of_reach(spark, path, "warehouse")
        self._spark = spark
        self.path = spark_path(path)

    def kept(self) -> FrameCache:
        """Return the keeper of frames for writing one table."""
        return FrameCache()

    def held(self, lines: DataFrame) -> DataFrame:
        """Return the journal's lines, which are read twice: that is better than to keep them."""
        return lines

    def write(
        self,
        table: Table,
        frame: DataFrame,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> None:
        """Replace the days that the frame has rows of, and keep the others.

        Args:
            first: With `last`, the days that the frame completely covers. A day among them
                without rows in the frame is emptied.
        """
        before = self._files_by_day(table)
        (
            frame.write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .options(**file_options(table))
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
        """Return the table's rows from the first day to the last; none if the table is missing."""
        try:
            frame = self._spark.read.schema(table.ddl).parquet(self._folder(table))
            # If Spark is remote, a missing folder shows only when the schema is requested.
            frame.schema  # noqa: B018
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.nothing(table)
        return between(frame, first, last)

    def has_rows(self, table: Table) -> bool:
        """Return whether a table has files. Days without rows may have some, too."""
        return bool(self.read(table).inputFiles())

    def nothing(self, table: Table) -> DataFrame:
        """Return a frame of the table's columns without a row."""
        return frame_of(self._spark, [], table.ddl)

    def _folder(self, table: Table) -> str:
        return f"{self.path}/{table.name}"

    def _files_by_day(self, table: Table) -> dict[datetime.date, set[str]]:
        files: dict[datetime.date, set[str]] = {}
        for file in self.read(table).inputFiles():
            if day := day_of_file(file):
                files.setdefault(day, set()).add(file)
        return files

    def _empty(self, table: Table, day: datetime.date) -> None:
        self.nothing(table).drop(PARTITION).write.mode("overwrite").parquet(
            f"{self._folder(table)}/{PARTITION}={day}"
        )


def file_options(table: Table) -> dict[str, str]:
    """Return the options of a table's files: no dictionary for values that hardly ever repeat.

    Times, durations and ids hardly repeat. Filling a dictionary with them and then discarding it
    takes half the time of a write.
    """
    plain = {
        f"parquet.enable.dictionary#{column.name}": "false"
        for column in table.columns
        if column.type == "bigint" or column.name in _UNIQUE_TEXTS
    }
    return {"compression": "zstd", "parquet.compression.codec.zstd.level": "1", **plain}


def between(
    frame: DataFrame, first: datetime.date | None = None, last: datetime.date | None = None
) -> DataFrame:
    """Return the rows from the first day to the last."""
    if first is not None:
        frame = frame.where(F.col(PARTITION) >= F.lit(first))
    if last is not None:
        frame = frame.where(F.col(PARTITION) <= F.lit(last))
    return frame
