"""Keeps frames in files, because Sail computes a frame each time it is read, in memory."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.storage.kept_frames import FrameCache, Make

#: Lines that are folded in memory at a time. They take about 1 GB.
MOST_LINES = 4_000_000


class SailKept(FrameCache):
    """Files of frames, until the context ends."""

    def __init__(self, spark: SparkSession, folder: TemporaryDirectory[str]) -> None:
        super().__init__()
        self._spark = spark
        self._folder = folder
        self._numbers = count()

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return a frame with the same rows, which is read from files."""
        return self._written([frame])

    def in_batches(self, make: Make, rows: DataFrame, workers: DataFrame) -> DataFrame:
        """Return the frame that is made from the rows, in parts by worker."""
        lines = workers.groupBy("wid").agg(F.sum("lines").alias("lines")).orderBy("wid")
        ends = ends_of([(row["wid"], row["lines"]) for row in lines.collect()], MOST_LINES)
        return self._written([make(rows.where(part)) for part in _ranges(ends)])

    def _written(self, parts: list[DataFrame]) -> DataFrame:
        folder = Path(self._folder.name, str(next(self._numbers)))
        for part in parts:
            write_parquet(part, folder)
        if not folder.exists():
            return self._spark.createDataFrame([], parts[0].schema)
        return self._spark.read.schema(parts[0].schema).parquet(str(folder))


def write_parquet(frame: DataFrame, folder: Path, *partitions: str) -> None:
    """Add rows to those in a folder. Without rows, there is no folder."""
    writer = frame.write.mode("append").option("compression", "zstd(1)")
    (writer.partitionBy(*partitions) if partitions else writer).parquet(str(folder))


def ends_of(lines: list[tuple[str, int]], most: int) -> list[str]:
    """Return the last worker of each part, except for the last part.

    A part has at most `most` lines, or one worker.

    Args:
        lines: The number of lines of each worker, ordered by name.
    """
    ends: list[str] = []
    total = 0
    for (before, _), (_, count_of) in zip([("", 0), *lines], lines, strict=False):
        if total and total + count_of > most:
            ends.append(before)
            total = 0
        total += count_of
    return ends


def _ranges(ends: list[str]) -> list[Column]:
    """Return the conditions that split workers at the ends."""
    wid = F.col("wid")
    starts = [F.lit(True), *(wid > end for end in ends)]
    stops = [*(wid <= end for end in ends), F.lit(True)]
    return [start & stop for start, stop in zip(starts, stops, strict=True)]
