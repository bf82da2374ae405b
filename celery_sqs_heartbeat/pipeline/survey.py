"""Measures a fleet for the advice on its settings, from sums of the tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import REFUSALS
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.tables.durations import Histogram
from celery_sqs_heartbeat.settings import Rules

#: With fewer attempts that have ended, nothing is worse.
ENOUGH = 1_000

_SECOND = 1e6
_NUMBER = r"(None|[\d.]+)"
#: The repr of `Rules` in the journal. Its first fields are enough.
_RULES = re.compile(
    rf"Rules\(visibility_timeout={_NUMBER}, threshold={_NUMBER}, max_lease={_NUMBER}[,)]"
)


@dataclass(kw_only=True)
class Measured:
    """The measurements of a queue, or of one task's messages in it.

    Attributes:
        task: None for the whole queue.
        held: Time from a message's receive to the end of its task.
        timeouts: Number of receives by their visibility timeout in seconds.
        slacks: By that timeout, the least time that an extension left of a lease, in seconds,
            except for 1 of 1,000 attempts.
        late: By that timeout, attempts whose lease ended because no extension came in time.
        entries_per_call: Average number of messages in a call that extends.
        concurrency: Maximum number of tasks at once, of the largest worker.
        settings: Settings of the worker that started last.
    """

    queue: str
    task: str | None
    held: Histogram = field(default_factory=Histogram)
    timeouts: Counter[int] = field(default_factory=Counter)
    slacks: dict[int, float] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    entries_per_call: float = 1.0
    concurrency: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_enough(self) -> bool:
        """Whether so many attempts have ended that settings can be worse than others."""
        return self.held.ended >= max(ENOUGH, self.held.count / 2)

    @property
    def usual_timeout(self) -> int:
        """The visibility timeout that most messages were received with; 0 if there is none."""
        return max(self.timeouts, key=lambda each: (self.timeouts[each], each), default=0)

    @property
    def running(self) -> LeaseTerms | None:
        """The settings that most messages were received with, as far as they are known."""
        timeout = self.usual_timeout
        return running_terms(self.settings, self.queue, timeout) if timeout else None

    @property
    def late_share(self) -> float:
        """The share of attempts with the usual timeout that a late extension cost its lease."""
        timeout = self.usual_timeout
        return self.late.get(timeout, 0) / max(1, self.timeouts[timeout])

    def longest(self, part: float) -> float:
        """Return how many seconds this part of all attempts take at most.

        If so many have not ended, it is the longest known time.
        """
        quantile = self.held.quantile(part)
        return (self.held.longest() if quantile is None else quantile) / _SECOND


@dataclass(frozen=True, kw_only=True)
class Survey:
    """All measurements: of the queues, and by queue of its tasks with enough messages."""

    queues: Sequence[Measured]
    tasks: Mapping[str, Sequence[Measured]]


def survey(
    durations: DataFrame, attempts: DataFrame, calls: DataFrame, workers: DataFrame
) -> Survey:
    """Return the measurements. The tables are collected as a few thousand sums."""
    extending = calls.where(F.col("kind") == "extend").groupBy("queue")
    sums = extending.agg(F.sum("entries").alias("entries"), F.sum("calls").alias("calls"))
    entries_per_call = {row.queue: row.entries / row.calls for row in sums.collect()}
    started = F.when(F.col("settings").isNotNull(), F.col("first_seen"))
    fleet = workers.agg(
        F.max("concurrency").alias("concurrency"), F.max_by("settings", started).alias("settings")
    ).first()
    assert fleet is not None

    def measured(*, by_task: bool) -> list[Measured]:
        found: dict[Any, Measured] = {}
        for queue, task, held, leases in _collected(durations, attempts, by_task=by_task):
            found[queue, task] = each = Measured(
                queue=queue,
                task=task,
                entries_per_call=entries_per_call.get(queue, 1.0),
                concurrency=fleet.concurrency or 1,
                settings=fleet.settings or {},
            )
            spans, censored = Counter[int](), Counter[int]()
            for row in held:
                spans[row.bin] += row.spans
                censored[row.bin] += row.censored
                if row.vt:
                    each.timeouts[row.vt] += row.spans + row.censored
            each.held = Histogram(+spans, +censored)
            for row in leases:
                each.late[row.vt] = row.late
                if row.slack_us is not None:
                    each.slacks[row.vt] = row.slack_us / _SECOND
        return [found[key] for key in sorted(found)]

    tasks = defaultdict(list)
    for each in measured(by_task=True):
        if each.task is not None and each.held.ended >= ENOUGH:
            tasks[each.queue].append(each)
    return Survey(queues=measured(by_task=False), tasks=tasks)


def _collected(
    durations: DataFrame, attempts: DataFrame, *, by_task: bool
) -> Iterator[tuple[str, str | None, list[Any], list[Any]]]:
    """Yield queue and task, their histogram by timeout, and the slack of leases by timeout."""
    task = (F.col("task") if by_task else F.lit(None).cast("string")).alias("task")
    held = durations.where(F.col("measure") == "held").groupBy("queue", task, "vt", "bin")
    bins = held.agg(F.sum("spans").alias("spans"), F.sum("censored").alias("censored"))
    # What was never extended has no slack, and is not late: its task may have opted out. A lease
    # that SQS refused to extend, or that reached its longest time, needs no other threshold. If SQS
    # delivers a message twice, its lease is lost without having expired.
    is_tried = (F.col("extensions") > 0) | (F.col("failures") > 0)
    has_ended = F.col("expired").isNotNull() & F.col("capped").isNull()
    refusals = [each.value for each in REFUSALS]
    is_refused = F.coalesce(F.col("last_error").isin(refusals), F.lit(False))
    leases = attempts.where(is_tried).groupBy("queue", task, "vt")
    slacks = leases.agg(
        F.count_if(has_ended & ~is_refused).alias("late"),
        F.percentile_approx("min_slack_us", 0.001, 1000).alias("slack_us"),
    )
    found: defaultdict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for row in bins.collect():
        found[row.queue, row.task][0].append(row)
    for row in slacks.collect():
        if (row.queue, row.task) in found:
            found[row.queue, row.task][1].append(row)
    for (queue, of_task), (of_bins, of_leases) in found.items():
        yield queue, of_task, of_bins, of_leases


def running_terms(settings: Mapping[str, str], queue: str, timeout: int) -> LeaseTerms:
    """Return the terms of a queue's leases, as far as a worker's first line shows them.

    Args:
        settings: Settings as in `workers`.
        timeout: Visibility timeout at the receive of its messages, in seconds.
    """
    special = re.search(re.escape(repr(queue)) + ": " + _RULES.pattern, settings.get("queues", ""))
    rules = _rules(_RULES.search(settings.get("rules", ""))).under(_rules(special))
    if rules.visibility_timeout not in (None, timeout):
        # It has changed since, and a threshold belongs to the timeout that it was set with.
        rules = Rules(max_lease=rules.max_lease)
    return rules.terms(timeout)


def _rules(found: re.Match[str] | None) -> Rules:
    if found is None:
        return Rules()
    timeout, threshold, max_lease = (None if it == "None" else float(it) for it in found.groups())
    return Rules(
        visibility_timeout=None if timeout is None else int(timeout),
        threshold=threshold,
        max_lease=max_lease,
    )
