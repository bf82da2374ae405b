"""What the numbers of each worker's lines tell before the lines are read in full."""

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

#: So many folders are named in a plan; of more, all lines are read, or shuffled.
MOST_FOLDERS = 1000


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker's lines.

    Attributes:
        folders: That they are in.
        is_whole: Whether each number from the first to the last is there once.
        leads: `lead` by day; None of a day that has none.
    """

    wid: str
    folders: frozenset[str]
    is_whole: bool
    leads: Mapping[datetime.date, int | None]


def workers_in(lines: DataFrame, lead: Column) -> list[Worker]:
    """Return the workers of the lines: one read of a few of their fields, a row for each day.

    Args:
        lead: An aggregate to take along of each worker's day.
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
    # In order, as a day that is in two folders is to have the same lead each time.
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
    """Return the folders of the workers that have given a number to two lines.

    Whose lines are whole has none. Of the others, nearly all lack some lines: their numbers are
    read once more, and counted.
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
    """Return whether no number lacks and none is there twice.

    Were as many to lack as are there twice, their number would not tell, but their sum and
    their exclusive or do.
    """
    first, last = min(row["first"] for row in rows), max(row["last"] for row in rows)
    count = last - first + 1
    expected = (count, (first + last) * count // 2, _xor_up_to(last) ^ _xor_up_to(first - 1))
    counts, sums, xors = zip(*((row["count"], row["sum"], row["xor"]) for row in rows), strict=True)
    return (sum(counts), sum(sums), reduce(xor, xors)) == expected


def _xor_up_to(number: int) -> int:
    """Return the exclusive or of the whole numbers from 0: it repeats every four."""
    return (number, 1, number + 1, 0)[number % 4]
