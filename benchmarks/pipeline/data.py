"""A fleet's events, multiplied over a day. Each copy has its own messages and workers."""

from __future__ import annotations

import datetime
import math
import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.pipeline.journal import write_journal
from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION
from celery_sqs_heartbeat.pipeline.storage.line_frames import read_lines
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse, file_options
from celery_sqs_heartbeat.pipeline.tables.events import events_of
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of
from fleet.generator import make_fleet

EVEN, HOT = "even", "hot"
SHAPES = (EVEN, HOT)
#: The percentage of the messages in the one hot queue.
HOT_PART = 95
#: How many queues each name has in the even shape.
QUEUES = 8

#: The fleet writes a million and a half lines.
_FLEET = {"workers": 20, "hours": 3.8, "seed": 7, "copies": 12}
_DAY = datetime.datetime(2026, 3, 2, tzinfo=datetime.timezone.utc)
#: The time from the first copy's start to the last's. The rest of the day is the fleet's life.
_SPREAD_US = 20 * 3600 * 1_000_000
#: The smallest number of copies of a fleet: with fewer, some workers have no copy.
_LITTLE = 0.05
#: The file that marks complete events.
_DONE = "_DONE"


def events_path(folder: Path, size: int, shape: str) -> Path:
    """Return the path of the warehouse of events."""
    return folder / f"{shape}-{size}"


def is_made(events: Path) -> bool:
    """Return whether a warehouse exists and is complete."""
    return (events / _DONE).exists()


def journal_path(folder: Path, size: int, *, with_skew: bool) -> Path:
    """Return the path of the journal."""
    return folder / (f"journal-{size}" if with_skew else f"journal-{size}-right-clocks")


class Data:
    """Journals and events in a folder, made on first use."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def journal(self, size: int, *, with_skew: bool) -> Path:
        """Return a compressed journal of about that many lines."""
        path = journal_path(self._folder, size, with_skew=with_skew)
        if not path.exists():
            events = Warehouse(self._spark, str(self.events(size, EVEN))).read(EVENTS)
            write_journal(events, path, with_skew=with_skew)
        return path

    def events(self, size: int, shape: str) -> Path:
        """Return a warehouse with about that many events."""
        path = events_path(self._folder, size, shape)
        if not is_made(path):
            shutil.rmtree(path, ignore_errors=True)
            base = self._base()
            count, begin = base.agg(F.count("*"), F.min("ts")).collect()[0]
            copies = math.ceil(size / count - _LITTLE)
            for number in range(copies):
                offset = round(_DAY.timestamp() * 1e6) - begin + _SPREAD_US * number // copies
                part = min(size / count - number, 1.0)
                some = base.where(F.pmod(F.xxhash64("wid"), F.lit(1000)) < round(part * 1000))
                copy = _copy(some, number, offset, is_hot=shape == HOT)
                (
                    copy.repartition(2, F.col("wid"))
                    .sortWithinPartitions("wid", "seq")
                    .write.mode("append")
                    .options(**file_options(EVENTS))
                    .partitionBy(PARTITION)
                    .parquet(str(path / EVENTS.name))
                )
            (path / _DONE).touch()
        return path

    def _fleet(self) -> Path:
        """Return the fleet's journal."""
        fleet = self._folder / "fleet"
        if not (fleet / "truth.jsonl").exists():
            make_fleet(fleet, **_FLEET)  # type: ignore[arg-type]
        return fleet / "journal"

    def _base(self) -> DataFrame:
        path = str(self._folder / "base")
        if not Path(path, "_SUCCESS").exists():
            lines = read_lines(self._spark, str(self._fleet()))
            events_of(lines).write.mode("overwrite").parquet(path)
        return self._spark.read.parquet(path)


def _copy(events: DataFrame, number: int, offset: int, *, is_hot: bool) -> DataFrame:
    """Return the events with other ids, and shifted by some microseconds."""

    def own(name: str) -> Column:
        # Ids keep their length, because they make up most of the shuffled data.
        return F.concat(F.lit(f"{number:03x}"), F.substring(name, 4, 100)).alias(name)

    queue = F.concat("queue", F.lit("-"), F.pmod(F.xxhash64("msg"), F.lit(QUEUES)))
    if is_hot:
        part = F.pmod(F.xxhash64("msg", F.lit(1)), F.lit(100))
        queue = F.when(part < HOT_PART, "hot").otherwise(queue)
    columns = {name: own(name) for name in ("wid", "msg", "dlv", "task_id")}
    columns |= {name: F.col(name) + offset for name in ("ts", "sent", "first")}
    columns["queue"] = F.when(F.col("queue").isNotNull(), queue)
    moved = events.withColumns(columns)
    return moved.withColumn(PARTITION, day_of(F.col("ts"))).select(*EVENTS.names)
