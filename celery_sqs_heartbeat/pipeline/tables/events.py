"""Turns the journal's lines into events: each once, on one clock.

A line may exist twice, because it was uploaded twice or its segment exists both open and closed. A
worker numbers its lines, so both are one event. To find copies, all lines would have to be
shuffled. But the numbers show which workers have no copies (`numbering`), and hardly any worker has
some. The same first read of the lines shows which clocks are wrong.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION
from celery_sqs_heartbeat.pipeline.storage.line_marks import FOLDER, is_wanted
from celery_sqs_heartbeat.pipeline.tables.numbering import (
    MOST_FOLDERS,
    folders_with_copies,
    workers_in,
)
from celery_sqs_heartbeat.pipeline.tables.rejects import reason_against
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, shape
from celery_sqs_heartbeat.pipeline.tables.skew import lead, skews_of, with_skew

#: The columns that identify a line.
_NUMBER = ["wid", "seq"]


class Rejected:
    """Counts lines that are not events while the result of `events_of` is written."""

    def __init__(self) -> None:
        self._observations: list[Observation] = []

    def watch(self, lines: DataFrame) -> DataFrame:
        """Return lines that have a `reason`; they are counted when they are read."""
        self._observations.append(Observation())
        rejected = F.count("reason").alias("rejected")
        return lines.observe(self._observations[-1], rejected)

    def count(self) -> int:
        """Return how many there were. It waits until the events are written."""
        return sum(each.get["rejected"] for each in self._observations)


def are_events(lines: DataFrame) -> bool:
    """Return whether `events_of` would not change lines that contain no rejects."""
    workers = workers_in(lines, lead())
    return not skews_of(workers) and not folders_with_copies(lines, workers)


def events_of(lines: DataFrame, rejected: Rejected | None = None) -> DataFrame:
    """Return the events of the requested days.

    Args:
        rejected: Counts the other lines, for one use of the events.
    """
    workers = workers_in(lines, lead())
    folders = folders_with_copies(lines, workers)

    def valid(some: DataFrame) -> DataFrame:
        judged = some.withColumn("reason", reason_against())
        if rejected is not None:
            judged = rejected.watch(judged)
        return judged.where(F.col("reason").isNull())

    def each_once() -> DataFrame:
        if not folders:
            return valid(lines)
        if len(folders) > MOST_FOLDERS:
            return valid(lines).dropDuplicates(_NUMBER)
        in_them = F.col(FOLDER).isin(folders)
        rest = valid(lines.where(~in_them))
        return rest.unionByName(valid(lines.where(in_them)).dropDuplicates(_NUMBER))

    on_one_clock = (
        with_skew(each_once(), workers)
        .withColumn("ts", F.col("ts") - F.col("skew_us"))
        .withColumn(PARTITION, day_of(F.col("ts")))
    )
    return shape(on_one_clock.where(is_wanted(PARTITION)), EVENTS)
