"""Recommends settings, from quantiles of times, the slack that leases had, and counts of calls.

- The **threshold** must cover the slowest extensions. Of the threshold, an extension uses what the
  lease's slack lacks at its end: pauses of the keeper, calls that fail, slow answers.
- The **visibility timeout** is three times the threshold or longer, so that the longest attempts
  need few extensions. It is no longer than that, because after a crash a message waits for it.
- **max_lease** must not end an attempt early.

Settings in use are recommended unchanged unless they are clearly worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.lease import (
    DEFAULT_MAX_LEASE_SECONDS,
    DEFAULT_THRESHOLD_PART,
    LeaseTerms,
)
from celery_sqs_heartbeat.leases.policy import MAX_RETRY_SECONDS, implied_calls_per_second
from celery_sqs_heartbeat.pipeline.phrases import at_most, count, sentence, span
from celery_sqs_heartbeat.pipeline.schema import PARTITION, RECOMMENDATIONS
from celery_sqs_heartbeat.pipeline.spark import frame_of
from celery_sqs_heartbeat.pipeline.survey import ENOUGH, Measured, Survey, survey
from celery_sqs_heartbeat.pipeline.tables.durations import Histogram
from celery_sqs_heartbeat.settings.rules import CALLS_PER_SECOND, DEFAULT_INTERVAL

#: The ranks of rows: the recommended settings, and those in use. Alternatives count from 1.
RECOMMENDED, RUNNING = 0, -1
#: Visibility timeouts to choose from, in seconds. Each is about 1.3 times the one before. 30 is
#: SQS's default: after a crash, it makes little difference whether a message waits for less.
TIMEOUTS = (
    *(30, 40, 50, 60, 80, 100, 120, 150, 180, 240, 300, 400, 500, 600, 800, 1000, 1200, 1500),
    *(1800, 2400, 3000, 3600, 4800, 6000, 7200, 9600, 12000, 14400, 18000, 24000, 30000, 36000),
    43195,
)
#: The longest attempts, except for 1 of 100, need at most this many extensions.
MOST_EXTENSIONS = 10
#: The smallest threshold, in seconds. A failed extension may pause this long before its next try,
#: and a short network outage may not be in any journal yet.
LEAST_THRESHOLD = MAX_RETRY_SECONDS
#: A threshold is this many times what the slowest extensions use, except for 1 of 1,000.
MARGIN = 2.0
#: Highest accepted share of attempts whose lease was lost because an extension came too late.
MOST_LATE = 1e-4
#: Settings are worse if they need this many times as many extensions or seconds as the best ones.
WORSE_BY = 4
#: A `max_lease` that was too short becomes this many times as long as 999 of 1,000 attempts take.
SAFETY = 3.0
#: Tasks need no settings of their own if both they and their queue take fewer seconds than this.
LEAST_OWN = 200.0
#: Messages that a worker holds for each task that it can run: the running one, and four more by
#: Celery's default `worker_prefetch_multiplier`.
HELD_PER_SLOT = 5

#: Returns the terms of a queue's or a task's leases, given the queue's own visibility timeout.
TermsOf = Callable[[str, str | None, int], LeaseTerms]
_SECOND = 1e6
#: With fewer attempts, a median means nothing.
_FEW = 3


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of `recommendations` without its day. The names are the same."""

    queue: str
    task: str | None
    rank: int
    visibility_timeout: int
    threshold: float
    interval: float
    max_lease: float
    calls_per_1000: float
    recovery_s: float
    messages: int
    confidence: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result for a queue's or a task's settings.

    Attributes:
        confidence: As in `recommendations`. If it is low, there is no fault.
        fault: Why they are worse than the recommended ones; empty if they are not.
    """

    queue: str
    task: str | None
    visibility_timeout: int
    threshold: float
    confidence: str
    fault: str = ""


def recommendations_of(
    durations: DataFrame, attempts: DataFrame, calls: DataFrame, workers: DataFrame
) -> DataFrame:
    """Return the recommended settings, alternatives, and the current settings."""
    last = durations.agg(F.max(PARTITION).alias("day")).first()
    day = None if last is None else last.day
    found = survey(durations, attempts, calls, workers)
    rows = [{**asdict(row), PARTITION: day} for row in recommend(found)]
    return frame_of(durations.sparkSession, rows, RECOMMENDATIONS.ddl)


def recommend(found: Survey) -> Iterator[Row]:
    """Return the rows of each queue, and of its tasks that need their own settings."""
    for queue in found.queues:
        yield from _rows_of(queue)
        for task in found.tasks.get(queue.queue, ()):
            if _needs_its_own(task, queue):
                yield from _rows_of(task)


def verdicts_of(found: Survey, terms_of: TermsOf) -> Iterator[Verdict]:
    """Return a verdict on each queue's settings, and on those of tasks that need their own."""
    for queue in found.queues:
        tasks = [each for each in found.tasks.get(queue.queue, ()) if _needs_its_own(each, queue)]
        for each in (queue, *tasks) if queue.timeouts else ():
            terms = terms_of(each.queue, each.task, queue.usual_timeout)
            yield Verdict(
                queue=each.queue,
                task=each.task,
                visibility_timeout=terms.visibility_timeout,
                threshold=terms.threshold,
                confidence="high" if each.is_enough else "low",
                fault=_fault(each, terms, best_terms(each)),
            )


def best_terms(measured: Measured) -> LeaseTerms:
    """Return the shortest timeout whose threshold has room, and that needs few extensions."""
    least, longest = _least_threshold(measured), measured.longest(0.99)
    for timeout in TIMEOUTS:
        terms = LeaseTerms.of(timeout, round(timeout * DEFAULT_THRESHOLD_PART, 1))
        is_roomy = terms.threshold >= least and _calls_per_second(measured, terms) <= (
            CALLS_PER_SECOND
        )
        if is_roomy and longest <= MOST_EXTENSIONS * (timeout - terms.threshold):
            break
    return terms


def _least_threshold(measured: Measured) -> float:
    """Return the smallest threshold that has room for what the slowest extensions use."""
    running = measured.running
    if running is None or not measured.is_enough:
        return LEAST_THRESHOLD
    if measured.late_share > MOST_LATE:
        return MARGIN * running.threshold
    slack = measured.slacks.get(running.visibility_timeout, running.threshold)
    return max(LEAST_THRESHOLD, MARGIN * (running.threshold - slack))


def _fault(measured: Measured, terms: LeaseTerms, best: LeaseTerms) -> str:
    """Return why settings are clearly worse than the best ones; empty if they are not."""
    if not measured.is_enough:
        return ""
    least = _least_threshold(measured)
    if terms.threshold < least and measured.late_share > MOST_LATE:
        return (
            f"extensions came too late in 1 of {1 / measured.late_share:,.0f} attempts: the "
            f"threshold should be {least:g} s or longer"
        )
    if terms.threshold < least:
        return (
            f"the slowest extensions use {span(least / MARGIN * _SECOND)} of the threshold, which "
            f"is more than half of its {terms.threshold:g} s"
        )
    longest = measured.held.quantile(0.999)
    if longest is not None and longest / _SECOND > terms.max_lease:
        return (
            f"max_lease={terms.max_lease:g} is too short: 1 of 1,000 attempts takes "
            f"{span(longest)} or more"
        )
    if terms.visibility_timeout > WORSE_BY * best.visibility_timeout:
        return (
            f"after a crash, a message waits for up to {terms.visibility_timeout:,} s, and "
            f"{best.visibility_timeout:,} s would be enough"
        )
    extensions = measured.longest(0.99) / (terms.visibility_timeout - terms.threshold)
    if extensions > WORSE_BY * MOST_EXTENSIONS:
        return f"the longest attempts need {extensions:,.0f} extensions"
    return ""


def _rows_of(measured: Measured) -> Iterator[Row]:
    running, best = measured.running, best_terms(measured)
    max_lease = DEFAULT_MAX_LEASE_SECONDS
    why, chosen, interval = "", best, None
    if running is not None:
        max_lease = _raised(measured, running.max_lease)
        why = _fault(measured, running, best)
        if not _fault(measured, LeaseTerms.of(*_values(running)), best):
            chosen, interval = running, _interval(measured, running)
        why = f"with the current settings, {why}" if why else _why_kept(measured)
        received = measured.timeouts[running.visibility_timeout]
        yield _row(
            measured,
            running,
            RUNNING,
            running.max_lease,
            f"{received:,} of {measured.held.count:,} attempts were received with these settings",
            _interval(measured, running),
        )
    reason = _reason(measured, chosen, why, None if chosen is running else running)
    yield _row(measured, chosen, RECOMMENDED, max_lease, reason, interval)
    near = (chosen.visibility_timeout / WORSE_BY, chosen.visibility_timeout * WORSE_BY)
    others = [each for each in TIMEOUTS if near[0] <= each <= near[1]]
    for rank, timeout in enumerate(others, 1):
        terms = LeaseTerms.of(timeout, round(timeout * DEFAULT_THRESHOLD_PART, 1))
        yield _row(measured, terms, rank, max_lease, "an alternative")


def _row(
    measured: Measured,
    terms: LeaseTerms,
    rank: int,
    max_lease: float,
    reason: str,
    interval: float | None = None,
) -> Row:
    calls, recovery = expected(measured, terms)
    return Row(
        queue=measured.queue,
        task=measured.task,
        rank=rank,
        visibility_timeout=terms.visibility_timeout,
        threshold=float(terms.threshold),
        interval=float(interval or min(DEFAULT_INTERVAL, terms.threshold / 2)),
        max_lease=float(max(max_lease, terms.visibility_timeout)),
        calls_per_1000=calls,
        recovery_s=recovery,
        messages=measured.held.count,
        confidence="high" if measured.is_enough else "low",
        reason=reason,
    )


def expected(measured: Measured, terms: LeaseTerms) -> tuple[float, float]:
    """Return the extension calls for 1,000 attempts, and the seconds from a crash to visible again.

    A crash is equally likely at each moment that a message is held. The time left then is the
    timeout, minus the time since the receive or the last extension.
    """
    step = terms.visibility_timeout - terms.threshold
    extensions = since_extension = mean = 0.0
    for microseconds, share in measured.held.distribution():
        number, rest = divmod(microseconds / _SECOND, step)
        extensions += share * number
        since_extension += share * (number * step**2 + rest**2) / 2
        mean += share * microseconds / _SECOND
    recovery = terms.visibility_timeout - (since_extension / mean if mean else 0)
    return 1000 * extensions / measured.entries_per_call, recovery


def _needs_its_own(task: Measured, queue: Measured) -> bool:
    """Return whether a task's attempts take more than twice as long, or less than half."""
    longest = [max(each.longest(0.999), LEAST_OWN) for each in (task, queue)]
    return not 0.5 <= longest[0] / longest[1] <= 2


def _raised(measured: Measured, max_lease: float) -> float:
    """Return a `max_lease` that cuts off no attempt: the given one, or a longer one.

    It is never lower. The longest attempt of a journal says nothing about the next one.
    """
    longest = measured.longest(0.999)
    if not measured.is_enough or longest <= max_lease:
        return max_lease
    return min(60.0 * math.ceil(longest * SAFETY / 60), DEFAULT_MAX_LEASE_SECONDS)


def _calls_per_second(measured: Measured, terms: LeaseTerms) -> float:
    leases = measured.concurrency * HELD_PER_SLOT
    timeout, threshold = _values(terms)
    return implied_calls_per_second(leases, visibility_timeout=timeout, threshold=threshold)


def _values(terms: LeaseTerms) -> tuple[int, float]:
    return terms.visibility_timeout, terms.threshold


def _why_kept(measured: Measured) -> str:
    if not measured.is_enough:
        return "there is too little data to recommend a change"
    return "no other settings are clearly better than the current ones"


def _reason(measured: Measured, terms: LeaseTerms, why: str, in_use: LeaseTerms | None) -> str:
    """Return the sentences about recommended settings.

    Args:
        why: Why they are better, or why the current ones stay; may be empty.
        in_use: The current settings, if these are others.
    """
    per_1000, recovery_s = expected(measured, terms)
    calls, recovery = count(round(per_1000), "extension call"), f"{recovery_s:,.0f} s"
    if in_use is not None:
        per_1000, recovery_s = expected(measured, in_use)
        calls += f" instead of {per_1000:,.0f}"
        recovery += f" instead of {recovery_s:,.0f} s"
    return " ".join(
        [
            *([sentence(why)] if why else []),
            f"1,000 attempts would take {calls}. After a crash, a message would be visible again "
            f"in {recovery}.",
            _how_long(measured.held),
            _how_sure(measured.held, is_enough=measured.is_enough),
        ]
    )


def _how_long(held: Histogram) -> str:
    """Return how long messages are held."""
    middle, longest = held.quantile(0.5), held.quantile(0.999)
    if longest is None:
        rest = "the longest attempts had not ended"
    elif middle is None or held.count < _FEW:
        return f"The longest attempt holds its message for at most {at_most(longest)}."
    else:
        whose = "999 of 1,000" if held.ended >= ENOUGH else "the longest"
        rest = f"{whose} for at most {at_most(longest)}"
    if middle is None:
        return sentence(rest)
    return f"Half of the attempts hold their message for at most {at_most(middle)}, and {rest}."


def _how_sure(held: Histogram, *, is_enough: bool) -> str:
    """Return the confidence in a sentence, with what is missing for a higher one."""
    basis = count(held.count, "attempt")
    if held.ended < held.count:
        basis = f"{held.ended:,} of {basis}"
    basis += " has ended" if held.ended == held.count == 1 else " have ended"
    if is_enough:
        return f"Confidence is high: {basis}."
    if held.ended >= ENOUGH:
        return f"Confidence is low: only {basis}."
    return f"Confidence is low: {basis}, {ENOUGH:,} are needed."


def _interval(measured: Measured, terms: LeaseTerms) -> float:
    """Return the keeper's longest sleep, in seconds."""
    said = measured.settings.get("interval")
    return float(said) if said else min(DEFAULT_INTERVAL, terms.threshold / 2)
