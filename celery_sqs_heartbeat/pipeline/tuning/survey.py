"""Measures a fleet: collects its histograms from the tables, a few thousand rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import KEEPER_LATE
from celery_sqs_heartbeat.pipeline.tables.bins import bin_column
from celery_sqs_heartbeat.pipeline.tables.calls import CALL_PARTS, entry_parts
from celery_sqs_heartbeat.pipeline.tuning.confidence import ENOUGH
from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram
from celery_sqs_heartbeat.pipeline.tuning.measured import Fleet, Measured

_EXTENSIONS = ("lease-extended", "extension-failed", "lease-lost", "lease-capped")


@dataclass(frozen=True, kw_only=True)
class Survey:
    """All measurements.

    Attributes:
        tasks: By queue, the measurements of its tasks with enough messages.
        settings: Settings of the worker that started last.
    """

    queues: Sequence[Measured]
    tasks: Mapping[str, Sequence[Measured]]
    settings: Mapping[str, str]


def survey(
    durations: DataFrame, attempts: DataFrame, events: DataFrame, workers: DataFrame
) -> Survey:
    """Return the measurements of each queue, and of tasks with enough messages."""
    crashes = _crashes(attempts)
    latencies, entries, stalls = _latenesses(events)
    about = _about(workers)
    fleet = Fleet(stalls=stalls, worker_us=about.worker_us or 0, concurrency=about.concurrency or 1)

    def measured(queue: str, task: str | None, found: _Found) -> Measured:
        latency = latencies.get(queue, Histogram())
        return Measured(
            queue=queue,
            task=task,
            held=Histogram(found.spans["held"], found.censored["held"]),
            run=Histogram(found.spans["run"], found.censored["run"]),
            latency=latency,
            entries_per_call=entries.get(queue, 1.0),
            crashes=sum(
                number
                for (of_queue, of_task), number in crashes.items()
                if of_queue == queue and task in (None, of_task)
            ),
            timeouts=dict(found.timeouts),
            fleet=fleet,
        )

    by_queue = _histograms(durations, F.lit(None).cast("string"))
    by_task = _histograms(_of_frequent_tasks(durations), F.col("task"))
    tasks = defaultdict(list)
    for (queue, task), found in sorted(by_task.items()):
        tasks[queue].append(measured(queue, task, found))
    queues = [measured(queue, None, found) for (queue, _), found in sorted(by_queue.items())]
    return Survey(queues=queues, tasks=tasks, settings=about.settings or {})


class _Found:
    """The histograms of a queue or a task, while they are collected."""

    def __init__(self) -> None:
        self.spans: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.censored: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.timeouts: Counter[int] = Counter()

    def add(self, row: Any) -> None:
        if row.spans:
            self.spans[row.measure][row.bin] += row.spans
        if row.censored:
            self.censored[row.measure][row.bin] += row.censored
        if row.measure == "held" and row.vt:
            self.timeouts[row.vt] += row.spans + row.censored


def _about(workers: DataFrame) -> Any:
    """Return the sum of the workers' lifetimes, the most tasks at once, and the last settings."""
    started = F.when(F.col("settings").isNotNull(), F.col("first_seen"))
    lives = workers.groupBy("wid").agg(
        (F.max("last_seen") - F.min("first_seen")).alias("us"),
        F.max("concurrency").alias("concurrency"),
        F.min(started).alias("started"),
        F.any_value("settings", True).alias("settings"),
    )
    return lives.agg(
        F.sum("us").alias("worker_us"),
        F.max("concurrency").alias("concurrency"),
        F.max_by("settings", "started").alias("settings"),
    ).first()


def _histograms(durations: DataFrame, task: Column) -> dict[tuple[str, Any], _Found]:
    rows = (
        durations.where(F.col("measure").isin("held", "run"))
        .groupBy("queue", task.alias("task"), "measure", "vt", "bin")
        .agg(F.sum("spans").alias("spans"), F.sum("censored").alias("censored"))
        .collect()
    )
    found: defaultdict[tuple[str, Any], _Found] = defaultdict(_Found)
    for row in rows:
        found[row.queue, row.task].add(row)
    return found


def _of_frequent_tasks(durations: DataFrame) -> DataFrame:
    frequent = (
        durations.where((F.col("measure") == "held") & F.col("task").isNotNull())
        .groupBy("queue", "task")
        .agg(F.sum("spans").alias("messages"))
        .where(F.col("messages") >= ENOUGH)
        .drop("messages")
    )
    return durations.join(F.broadcast(frequent), ["queue", "task"])


def _crashes(attempts: DataFrame) -> dict[tuple[str, str | None], int]:
    abandoned = attempts.where(F.col("ended_as") == "abandoned")
    return {
        (row.queue, row.task): row.crashes
        for row in abandoned.groupBy("queue", "task").agg(F.count("*").alias("crashes")).collect()
    }


def _latenesses(
    events: DataFrame,
) -> tuple[dict[str, Histogram], dict[str, float], Histogram]:
    """Return, by queue, calls by latency and entries per call; and the keepers' stalls."""
    is_extension = F.col("ev").isin(*_EXTENSIONS) & F.col("batch").isNotNull()
    late = events.where(is_extension | (F.col("ev") == KEEPER_LATE))
    rows = (
        late.groupBy("queue", bin_column(F.coalesce("late_us", "lat_us", F.lit(0))).alias("bin"))
        .agg(F.count("*").alias("events"), F.sum(entry_parts()).alias("parts"))
        .collect()
    )
    calls: defaultdict[str, Counter[int]] = defaultdict(Counter)
    parts: Counter[str] = Counter()
    entries: Counter[str] = Counter()
    for row in rows:
        if row.queue is not None:
            # Round up: a call counts even if a part of it is on days that were not read.
            calls[row.queue][row.bin] += -(-row.parts // CALL_PARTS)
            parts[row.queue] += row.parts
            entries[row.queue] += row.events
    stalls = {row.bin: row.events for row in rows if row.queue is None}
    return (
        {queue: Histogram(counts) for queue, counts in calls.items()},
        {queue: entries[queue] * CALL_PARTS / parts[queue] for queue in calls},
        Histogram(stalls),
    )
