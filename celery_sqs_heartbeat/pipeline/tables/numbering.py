"""Checks the numbers of each worker's lines, before the lines are read completely."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.storage.line_marks import DAY, FOLDER

#: A plan names at most this many folders. If there are more, all lines are read or shuffled.
MOST_FOLDERS = 1000


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker's lines.

    Attributes:
        folders: The folders that they are in.
        is_whole: Whether each number from the first to the last exists exactly once.
        leads: `lead` by day; None for a day that has none.
    """

    wid: str
    folders: frozenset[str]
    is_whole: bool
    leads: Mapping[datetime.date, int | None]


def workers_in(lines: DataFrame, lead: Column) -> list[Worker]:
    """Return the workers of the lines. It reads a few fields once, with a row for each day.

    Args:
        lead: An additional aggregate for each worker's day.
    """
    seq = F.col("seq")
    days = (
        lines.where(F.col("wid").isNotNull() & seq.isNotNull())
        .groupBy("wid", FOLDER, DAY)
        .agg(
            F.count(seq).alias("count"),
            F.min(seq).alias("first"),
            F.max(seq).alias("last"),
            F.sum(seq).alias("sum"),
            F.bit_xor(seq).alias("xor"),
            lead.alias("lead"),
        )
    )
    of_worker: defaultdict[str, list[Any]] = defaultdict(list)
    # Sorted, so that a day in two folders has the same lead in each run.
    for row in sorted(days.collect(), key=lambda row: row[FOLDER]):
        of_worker[row["wid"]].append(row)
    return [
        Worker(
            wid=wid,
            folders=frozenset(row[FOLDER] for row in rows),
            is_whole=_is_whole(rows),
            leads={row[DAY]: row["lead"] for row in rows},
        )
        for wid, rows in of_worker.items()
    ]


def folders_with_copies(lines: DataFrame, workers: Iterable[Worker]) -> list[str]:
    """Return the folders of workers that have two lines with the same number.

    A worker whose lines are complete has no copies. Nearly all others only lack some lines. Their
    numbers are read once more and counted.
    """
    folders_of = {worker.wid: worker.folders for worker in workers if not worker.is_whole}
    folders = sorted(set().union(*folders_of.values()))
    if not folders:
        return []
    theirs = lines.where(F.col(FOLDER).isin(folders)) if len(folders) <= MOST_FOLDERS else lines
    numbers = theirs.groupBy("wid").agg(
        F.count("seq").alias("lines"), F.count_distinct("seq").alias("numbers")
    )
    copied = [row["wid"] for row in numbers.where("lines > numbers").collect()]
    return sorted({folder for wid in copied for folder in folders_of.get(wid, ())})


def _is_whole(rows: list[Any]) -> bool:
    """Return whether no number is missing and none exists twice.

    If as many are missing as exist twice, the count does not show it, but the sum and the exclusive
    or do.
    """
    first, last = min(row["first"] for row in rows), max(row["last"] for row in rows)
    count = last - first + 1
    expected = (count, (first + last) * count // 2, _xor_up_to(last) ^ _xor_up_to(first - 1))
    counts, sums, xors = zip(*((row["count"], row["sum"], row["xor"]) for row in rows), strict=True)
    return (sum(counts), sum(sums), reduce(xor, xors)) == expected


def _xor_up_to(number: int) -> int:
    """Return the exclusive or of the integers from 0, which follows a pattern of four."""
    return (number, 1, number + 1, 0)[number % 4]
