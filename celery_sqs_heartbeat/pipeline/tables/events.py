"""The tables that are made of the journal's lines: events, rejects, workers and calls.

**Once.** A line may exist twice, because it was uploaded twice or its segment exists both open and
closed. A worker numbers its lines, so both are one event. To find copies, all lines would have to
be shuffled. But the numbers show which workers have neither copies nor gaps, and hardly any worker
has some. Only the folders of the others are shuffled.

**One clock.** For each message, SQS reports when it was first received, by its own clock, which all
workers share. If the message was never received before, that is the time of this receive. The
worker's clock at the answer, minus that time, is how far the clock is ahead, plus the few
milliseconds that the answer took. This needs no message that two workers saw, and is more accurate
than comparing two workers' clocks.

**A row for each worker and day** depends only on that day's lines. So a run makes it from the days
that it reads, and rows of several days can be combined: the smallest `first_seen`, the largest
`last_seen`, the sum of `lines`.
"""

from __future__ import annotations

import datetime
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import (
    CALLED,
    KEEPER_LATE,
    RECEIVED,
    VERSION,
    WORKER_STARTED,
    WORKER_STOPPED,
)
from celery_sqs_heartbeat.journal.fields import EVENTS as KINDS
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.pipeline.schema import CALLS, EVENTS, PARTITION, REJECTS, WORKERS
from celery_sqs_heartbeat.pipeline.spark import day_of, frame_of, shape, us_of

#: The columns that lines have in addition to the fields of events: the text of a line that is no
#: JSON object, the segment's path, its folder's day, and whether this stands for a torn segment.
CORRUPT, FILE, DAY, TORN = "_corrupt", "_file", "_day", "_torn"
#: The worker's folder of the segment, or empty.
FOLDER = "_folder"
#: The first and the last requested day, or null. Each line has them, as constants.
FIRST, LAST = "_first", "_last"

#: Smaller skew is not corrected, in microseconds. An answer takes 5 to 50 ms, SQS's times are whole
#: milliseconds, and a clock set by NTP is accurate to a few milliseconds.
MIN_SKEW_US = 100_000
#: A plan names at most this many folders. If there are more, all lines are shuffled.
MOST_FOLDERS = 1000

#: Accuracy of `percentile_approx`: the median's rank is right to a thousandth.
_ACCURACY = 1000
#: The columns that identify a line.
_NUMBER = ["wid", "seq"]
_REQUIRED = ("ts", "seq", "ev", "wid")
_TORN_SEGMENT, _CORRUPT_LINE = "torn segment", "corrupt line"
_REASONS = (_TORN_SEGMENT, _CORRUPT_LINE, "unknown version", "unknown event")

#: The columns that come only from a worker's first line.
TOLD_AT_START = ("host", "pid", "node", "pool", "concurrency", "settings", "versions")

_PACKAGE = "celery-sqs-heartbeat"
#: A request to a standard queue: $0.40 per million, up to 100 billion a month, in us-east-1
#: (list price of Amazon SQS). The free first million of each month is ignored.
_STANDARD_USD = 0.40 / 1_000_000
#: A request to a FIFO queue, likewise.
_FIFO_USD = 0.50 / 1_000_000

#: The columns of an entry of a call, besides its `kind` and its `parts` of the call.
_CALLER = (PARTITION, "queue", "wid", "err")
_RELEASES = ("message-released", "message-lapsing")
_DELETES = ("message-deleted", "delete-failed", "delete-abandoned")
#: Calls are counted in this many parts. An entry's share of a call of 1 to 10 entries is a whole
#: number of parts, so the sum is exact in any order.
_CALL_PARTS = 2520
#: Messages that were requested within this time, in microseconds, belong to one receive: each line
#: rounds the same moment on its own. A worker's next receive comes after the answer.
_ONE_RECEIVE_US = 10


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker's lines.

    Attributes:
        folders: The folders that they are in.
        is_whole: Whether each number from the first to the last exists exactly once.
        leads: By day, how far its clock is ahead in microseconds; None if no line shows it.
    """

    wid: str
    folders: frozenset[str]
    is_whole: bool
    leads: Mapping[datetime.date, int | None]


def events_of(lines: DataFrame) -> DataFrame:
    """Return the events of the requested days."""
    workers = workers_in(lines)
    folders = sorted({each for worker in workers if not worker.is_whole for each in worker.folders})
    valid = lines.where(_reason_against().isNull())
    if len(folders) > MOST_FOLDERS:
        valid = valid.dropDuplicates(_NUMBER)
    elif folders:
        is_in_them = F.col(FOLDER).isin(folders)
        once = valid.where(is_in_them).dropDuplicates(_NUMBER)
        valid = valid.where(~is_in_them).unionByName(once)
    on_one_clock = (
        _with_skew(valid, workers)
        .withColumn("ts", F.col("ts") - F.col("skew_us"))
        .withColumn(PARTITION, day_of(F.col("ts")))
    )
    return shape(on_one_clock.where(_is_wanted(PARTITION)), EVENTS)


def rejects_of(lines: DataFrame) -> DataFrame:
    """Return how many lines of each segment are not events, by reason.

    They count for the day of their folder, because their own time can't be trusted. The rest of a
    torn segment's last line does not count as a line.
    """
    rejected = (
        lines.where(_is_wanted(DAY))
        .withColumn("reason", _reason_against())
        .where(F.col("reason").isNotNull())
    )
    by_text = rejected.groupBy(FILE, DAY, CORRUPT).agg(
        *(F.count_if(F.col("reason") == reason).alias(reason) for reason in _REASONS)
    )
    is_rest = F.col(CORRUPT).isNotNull() & (F.col(_TORN_SEGMENT) > 0)
    others = F.col(_CORRUPT_LINE) - F.when(is_rest, 1).otherwise(0)
    by_segment = (
        by_text.withColumn(_CORRUPT_LINE, F.greatest(others, F.lit(0)))
        .groupBy(FILE, DAY)
        .agg(*(F.sum(reason).alias(reason) for reason in _REASONS))
    )
    counts = (
        F.struct(F.lit(name).alias("reason"), F.col(name).alias("lines")) for name in _REASONS
    )
    by_reason = by_segment.select(
        F.col(FILE).alias("file"), F.col(DAY).alias("dt"), F.explode(F.array(*counts)).alias("one")
    )
    return shape(by_reason.select("file", "dt", "one.*").where("lines > 0"), REJECTS)


def workers_in(lines: DataFrame) -> list[Worker]:
    """Return the workers of the lines. It reads a few fields once, with a row for each day."""
    seq = F.col("seq")
    is_first = (F.col("ev") == EventKind.MESSAGE_RECEIVED.value) & (F.col("rc") == 1)
    lead = F.when(is_first, F.col("ts") - F.col("first"))
    days = (
        lines.where(F.col("wid").isNotNull() & seq.isNotNull())
        .groupBy("wid", FOLDER, DAY)
        .agg(
            F.count(seq).alias("count"),
            F.min(seq).alias("first"),
            F.max(seq).alias("last"),
            F.sum(seq).alias("sum"),
            F.bit_xor(seq).alias("xor"),
            # The median, because answers to a process that had been stopped are outliers.
            F.percentile_approx(lead, 0.5, _ACCURACY).cast("bigint").alias("lead"),
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


def _with_skew(lines: DataFrame, workers: Iterable[Worker]) -> DataFrame:
    """Add `skew_us`: how far the worker's clock was ahead that day.

    A skew that is too small to correct is 0. On a day without a new message, a worker has its usual
    skew: the median of its other days.
    """
    rows = []
    for worker in workers:
        skews = {
            str(day): us if abs(us) >= MIN_SKEW_US else 0
            for day, us in worker.leads.items()
            if us is not None
        }
        if any(skews.values()):
            usual = statistics.median_low(skews.values())
            rows.append({"wid": worker.wid, "skews": skews, "usual": usual})
    if not rows:
        return lines.withColumn("skew_us", F.lit(0))
    ddl = "wid string, skews map<string, bigint>, usual bigint"
    skewed = F.broadcast(frame_of(lines.sparkSession, rows, ddl))
    skew = F.coalesce(F.col("skews")[F.col(DAY).cast("string")], "usual", F.lit(0))
    return lines.join(skewed, "wid", "left").withColumn("skew_us", skew)


def _reason_against() -> Column:
    """Return why a line is not an event; null if it is one."""
    lacks_something = F.greatest(*(F.col(name).isNull() for name in _REQUIRED))
    return (
        F.when(F.col(TORN), _TORN_SEGMENT)
        .when(F.col(CORRUPT).isNotNull() | F.col("v").isNull(), _CORRUPT_LINE)
        .when(F.col("v") != VERSION, "unknown version")
        .when(lacks_something, _CORRUPT_LINE)
        .when(~F.col("ev").isin(*KINDS), "unknown event")
    )


def _is_wanted(day: str) -> Column:
    """Return whether the day in this column is a requested day."""
    return F.coalesce(F.col(day) >= F.col(FIRST), F.lit(True)) & F.coalesce(
        F.col(day) <= F.col(LAST), F.lit(True)
    )


def workers_of(events: DataFrame) -> DataFrame:
    """Return a row for each worker and day with a line of it."""
    ev, ts, seq = F.col("ev"), F.col("ts"), F.col("seq")
    late = F.when(ev == KEEPER_LATE, F.col("late_us"))
    days = events.groupBy("wid", PARTITION).agg(
        F.min(ts).alias("first_seen"),
        F.max(ts).alias("last_seen"),
        F.max(F.when(ev == WORKER_STOPPED, ts)).alias("stopped"),
        F.count(seq).alias("lines"),
        F.min(seq).alias("first_seq"),
        F.max(seq).alias("last_seq"),
        F.count(late).alias("late_count"),
        F.max(late).alias("late_max_us"),
    )
    starts = events.where(ev == WORKER_STARTED).select("wid", PARTITION, *TOLD_AT_START)
    return shape(days.join(starts, ["wid", PARTITION], "left"), WORKERS)


def with_reported(workers: DataFrame, earlier: DataFrame) -> DataFrame:
    """Fill in the facts of the workers' starts, including starts on an earlier day."""
    told = earlier.groupBy("wid").agg(*(F.any_value(n, True).alias(n) for n in TOLD_AT_START))
    return workers.drop(*TOLD_AT_START).join(told, "wid", "left").select(*WORKERS.names)


def data_end(workers: DataFrame) -> DataFrame:
    """Return one row with `data_end`: the last line of any worker."""
    return workers.agg(F.max("last_seen").alias("data_end"))


def missing() -> Column:
    """Return the aggregate of one worker's rows with the number of lines in its gaps."""
    return F.max("last_seq") - F.min("first_seq") + 1 - F.sum("lines")


def calls_of(events: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the calls by day, queue, version and kind.

    An entry counts as its share of its batch, so each call counts once.
    """
    ev = F.col("ev")
    kind = F.when(ev.isin(*_RELEASES), "release").when(ev.isin(*_DELETES), "delete")
    parts = (F.lit(_CALL_PARTS) / F.greatest("batch", F.lit(1))).cast("bigint")
    answers = events.where(ev.isin(*CALLED) & F.col("batch").isNotNull()).select(
        *_CALLER, kind.otherwise("extend").alias("kind"), parts.alias("parts")
    )
    versions = workers.groupBy("wid").agg(F.max(F.col("versions")[_PACKAGE]).alias("version"))
    by_version = (
        answers.unionByName(_receives(events))
        .groupBy(PARTITION, "queue", "wid", "kind")
        .agg(
            F.sum("parts").alias("parts"),
            F.count("*").alias("entries"),
            F.count("err").alias("failed"),
        )
        .join(F.broadcast(versions), "wid", "left")
        .groupBy(PARTITION, "queue", "version", "kind")
        .agg(*(F.sum(name).alias(name) for name in ("parts", "entries", "failed")))
        .withColumn("calls", F.col("parts") / F.lit(_CALL_PARTS))
    )
    price = F.when(F.col("queue").endswith(".fifo"), _FIFO_USD).otherwise(_STANDARD_USD)
    saved = F.when(F.col("kind") == "receive", 0).otherwise(F.col("entries") - F.col("calls"))
    priced = by_version.withColumns(
        {"cost_usd": F.col("calls") * price, "saved_usd": saved * price}
    )
    return shape(priced, CALLS)


def _receives(events: DataFrame) -> DataFrame:
    """Return the received messages. The first one of each call has all of the call's parts.

    A lease counts from the moment when its receive was requested, which identifies the call. If a
    line does not have it, the message counts as a tenth of a call: no call returns more than ten.
    """
    asked = F.col("mono") + F.col("slack_us") - us_of(F.col("vt"))
    in_order = Window.partitionBy(PARTITION, "queue", "wid").orderBy("asked")
    is_same = F.col("asked") - F.lag("asked").over(in_order) <= _ONE_RECEIVE_US
    parts = (
        F.when(F.col("asked").isNull(), _CALL_PARTS // SQS.most_entries)
        .when(F.coalesce(is_same, F.lit(False)), 0)
        .otherwise(_CALL_PARTS)
    )
    received = events.where(F.col("ev").isin(*RECEIVED)).select(*_CALLER, asked.alias("asked"))
    return received.select(*_CALLER, F.lit("receive").alias("kind"), parts.alias("parts"))
