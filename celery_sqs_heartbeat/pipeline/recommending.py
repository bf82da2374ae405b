"""Puts together what is recommended, what else there is to choose, and what runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from celery_sqs_heartbeat.core.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.choosing import Choice, choose, needs_its_own, terms_of
from celery_sqs_heartbeat.pipeline.confidence import confidence_of, least_risk
from celery_sqs_heartbeat.pipeline.measured import Measured
from celery_sqs_heartbeat.pipeline.measuring import Survey
from celery_sqs_heartbeat.pipeline.replay import Expected, Worth, replay
from celery_sqs_heartbeat.pipeline.running import (
    default_interval,
    running_interval,
    running_terms,
)

RECOMMENDED = 0
RUNNING = -1


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of `recommendations`, but for its day; the same names."""

    queue: str
    task: str | None
    rank: int
    visibility_timeout: int
    threshold: float
    interval: float
    max_lease: float
    calls_per_1000: float
    recovery_s: float
    risk: float
    least_risk: float
    objective: float
    messages: int
    confidence: str
    reason: str


def recommend(found: Survey, worth: Worth) -> Iterator[Row]:
    """Return the rows of each queue, and of its tasks that should have settings of their own."""
    for queue in found.queues:
        choice = choose(queue, worth)
        yield from rows_of(queue, choice)
        if queue.timeouts:
            yield running_row(queue, found.settings, worth)
        for task in found.tasks.get(queue.queue, ()):
            if needs_its_own(task, choice):
                yield from rows_of(task, choose(task, worth))


def rows_of(measured: Measured, choice: Choice) -> Iterator[Row]:
    """Return the recommended row and those of the curve."""
    yield row_of(measured, choice.best, RECOMMENDED, choice.max_lease, choice.reason)
    for rank, each in enumerate(choice.curve, 1):
        max_lease = max(choice.max_lease, each.visibility_timeout)
        yield row_of(measured, each, rank, max_lease, "on the curve of calls against recovery")


def running_row(measured: Measured, settings: Mapping[str, str], worth: Worth) -> Row:
    """Return what is expected of the settings that the queue's messages mostly had."""
    timeout = max(measured.timeouts, key=lambda each: (measured.timeouts[each], each))
    terms = running_terms(settings, measured.queue, timeout)
    return row_of(
        measured,
        replay(measured, terms, worth),
        RUNNING,
        terms.max_lease,
        f"{measured.timeouts[timeout]:,} of {measured.messages:,} messages were received so",
        running_interval(settings, terms),
    )


def row_of(
    measured: Measured,
    expected: Expected,
    rank: int,
    max_lease: float,
    reason: str,
    interval: float | None = None,
) -> Row:
    """Return the row of one candidate."""
    terms: LeaseTerms = terms_of(expected)
    return Row(
        queue=measured.queue,
        task=measured.task,
        rank=rank,
        visibility_timeout=terms.visibility_timeout,
        # Spark takes no whole number for a double.
        threshold=float(terms.threshold),
        interval=float(interval or default_interval(terms.threshold)),
        max_lease=float(max_lease),
        calls_per_1000=expected.calls_per_1000,
        recovery_s=expected.recovery_s,
        risk=expected.risk,
        least_risk=least_risk(measured),
        objective=expected.objective,
        messages=measured.messages,
        confidence=confidence_of(measured),
        reason=reason,
    )
