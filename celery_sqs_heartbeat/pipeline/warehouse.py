"""Stores the tables as Parquet, with a folder for each table and day."""

from __future__ import annotations

import datetime
import re

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Days, Span
from celery_sqs_heartbeat.pipeline.faults import PipelineError
from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION, REJECTS, TABLES, Table
from celery_sqs_heartbeat.pipeline.spark import between, frame_of, is_out_of_reach, spark_path

#: Text columns whose values hardly ever repeat.
_UNIQUE_TEXTS = ("msg", "dlv", "task_id", "evidence")
#: The day in a file's path.
_DAY = re.compile(rf"/{PARTITION}=(\d{{4}}-\d\d-\d\d)/[^/]*$")
#: A smaller share is shown as less than this.
_LEAST_SHARE = 0.001


class Warehouse:
    """The tables in one place: a folder, or a URL that Spark can write to, such as `s3a://`.

    Raises:
        PipelineError: The place is on S3, and Spark is on this machine.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if is_out_of_reach(spark, path):
            raise PipelineError(
                f"the warehouse {path!r} is on S3, for which Spark on one machine has no "
                "connector: give a folder, or run it on a cluster; if you have installed a "
                "connector, write s3a://"
            )
        self._spark = spark
        self._path = spark_path(path)

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
            .options(**_file_options(table))
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
            return self._nothing(table)
        return between(frame, first, last)

    def has_rows(self, table: Table) -> bool:
        """Return whether a table has files. Days without rows may have some, too."""
        return bool(self.read(table).inputFiles())

    def count_rows(self, days: Days) -> dict[tuple[str, datetime.date], int]:
        """Return the number of rows of each table and day."""
        counts: dict[tuple[str, datetime.date], int] = {}
        for table in TABLES.values():
            frame = self.read(table, days.first, days.last)
            for row in frame.groupBy(PARTITION).agg(F.count("*").alias("rows")).collect():
                counts[table.name, row[PARTITION]] = row["rows"]
        return counts

    def has_messages(self, days: Days) -> bool:
        """Return whether there is an event of a message on these days, or on the days beside."""
        around = days.grown(1, 1)
        events = self.read(EVENTS, around.first, around.last)
        return not events.where(F.col("msg").isNotNull()).isEmpty()

    def refuse_unreadable(self, days: Days, journal: str) -> None:
        """Refuse a journal from which no event was read.

        Raises:
            PipelineError: None of its lines is an event.
        """
        lost, reasons = self._unread(days)
        around = days.grown(1, 1)
        if lost and self.read(EVENTS, around.first, around.last).isEmpty():
            raise PipelineError(
                f"nothing of the journal {journal!r} can be read {Span(days.first, days.last)} "
                f"({reasons}): give the value of sqs_heartbeat_journal"
            )

    def unread_in(self, days: Days | Span, journal: str) -> str:
        """Return the share of a journal's lines that could not be read; empty if all could be."""
        lost, reasons = self._unread(days)
        if not lost:
            return ""
        share = lost / (lost + self.read(EVENTS, days.first, days.last).count())
        part = f"{share:.1%}" if share >= _LEAST_SHARE else f"less than {_LEAST_SHARE:.1%}"
        return (
            f"{part} of the lines of {journal!r} could not be read ({reasons}); the rest was. The "
            "table rejects and the report's last section name the files"
        )

    def _unread(self, days: Days | Span) -> tuple[int, str]:
        """Return how many lines could not be read, and how many by reason."""
        # Few journals have rejects. Without rejects, no file has to be read.
        if not self.has_rows(REJECTS):
            return 0, ""
        rejects = self.read(REJECTS, days.first, days.last)
        by_reason = rejects.groupBy("reason").agg(F.sum("lines").alias("lines")).orderBy("reason")
        sums = by_reason.collect()
        reasons = ", ".join(f"{row['reason']}: {row['lines']:,}" for row in sums)
        return sum(row["lines"] for row in sums), reasons

    def _nothing(self, table: Table) -> DataFrame:
        return frame_of(self._spark, [], table.ddl)

    def _folder(self, table: Table) -> str:
        return f"{self._path}/{table.name}"

    def _files_by_day(self, table: Table) -> dict[datetime.date, set[str]]:
        files: dict[datetime.date, set[str]] = {}
        for file in self.read(table).inputFiles():
            if match := _DAY.search(file):
                files.setdefault(datetime.date.fromisoformat(match[1]), set()).add(file)
        return files

    def _empty(self, table: Table, day: datetime.date) -> None:
        self._nothing(table).drop(PARTITION).write.mode("overwrite").parquet(
            f"{self._folder(table)}/{PARTITION}={day}"
        )


class MemoryWarehouse(Warehouse):
    """Tables in Spark's memory, or on its disk, that exist as long as this object does.

    For one report, that takes half the time of writing files and reading them again. Each table is
    written as a whole.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark, "memory")
        self._tables: dict[Table, DataFrame] = {}

    def write(
        self,
        table: Table,
        frame: DataFrame,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> None:
        """Replace the table, whatever days it had."""
        del first, last
        # Unlike what `persist` keeps, later plans do not contain its plan.
        self._tables[table] = frame.localCheckpoint()

    def read(
        self,
        table: Table,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> DataFrame:
        """Return the table's rows from the first day to the last; none if it was not written."""
        rows = self._tables.get(table)
        return self._nothing(table) if rows is None else between(rows, first, last)

    def has_rows(self, table: Table) -> bool:
        """Return whether a table has a row."""
        return not self.read(table).isEmpty()


def _file_options(table: Table) -> dict[str, str]:
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
