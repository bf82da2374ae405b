"""Collects the recommended settings, the alternatives and the current settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS, LeaseTerms
from celery_sqs_heartbeat.pipeline.tuning.choosing import (
    Choice,
    choose,
    needs_its_own,
    raised,
)
from celery_sqs_heartbeat.pipeline.tuning.comparing import compare
from celery_sqs_heartbeat.pipeline.tuning.confidence import confidence_of
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured
from celery_sqs_heartbeat.pipeline.tuning.reasons import reason_of, why_kept
from celery_sqs_heartbeat.pipeline.tuning.replay import Worth, replay
from celery_sqs_heartbeat.pipeline.tuning.row import RECOMMENDED, RUNNING, Row, row_of
from celery_sqs_heartbeat.pipeline.tuning.running_settings import running_interval, running_terms
from celery_sqs_heartbeat.pipeline.tuning.survey import Survey


def recommend(found: Survey, worth: Worth) -> Iterator[Row]:
    """Return the rows of each queue, and of its tasks that need their own settings."""
    for queue in found.queues:
        choice = choose(queue, worth)
        running = running_of(queue, found.settings)
        yield from rows_of(queue, choice, running, worth)
        if running is not None:
            yield running_row(queue, running, worth)
        for task in found.tasks.get(queue.queue, ()):
            if needs_its_own(task, queue):
                running = running_of(task, found.settings)
                yield from rows_of(task, choose(task, worth), running, worth)


@dataclass(frozen=True, kw_only=True)
class Running:
    """The settings that most messages were received with."""

    terms: LeaseTerms
    interval: float


def running_of(measured: Measured, settings: Mapping[str, str]) -> Running | None:
    """Return the settings that most messages were received with; None if they are unknown."""
    if not measured.timeouts:
        return None
    terms = running_terms(settings, measured.queue, most_used_timeout(measured))
    return Running(terms=terms, interval=running_interval(settings, terms))


def most_used_timeout(measured: Measured) -> int:
    """Return the visibility timeout that most messages were received with, in seconds."""
    return max(measured.timeouts, key=lambda each: (measured.timeouts[each], each))


def rows_of(
    measured: Measured, choice: Choice, running: Running | None, worth: Worth
) -> Iterator[Row]:
    """Return the recommended row and those of the rest of the curve.

    The current settings are recommended unless `tune --check` finds them worse.
    """
    best = _recommended(measured, choice, running, worth)
    yield best
    others = [each for each in choice.curve if not best.is_of(each)]
    for rank, each in enumerate(others, 1):
        yield row_of(measured, each, rank, best.max_lease, "on the curve of calls against recovery")


def _recommended(measured: Measured, choice: Choice, running: Running | None, worth: Worth) -> Row:
    if running is None:
        reason = reason_of(measured, choice.best, is_safe=choice.is_safe)
        return row_of(measured, choice.best, RECOMMENDED, DEFAULT_MAX_LEASE_SECONDS, reason)
    in_use = replay(measured, running.terms, worth)
    fault = compare(measured, running.terms, choice, worth).fault
    max_lease = running.terms.max_lease
    if confidence_of(measured) != "low":
        max_lease = raised(measured, max_lease)
    why = f"with the current settings, {fault}" if fault else why_kept(measured)
    endless = replace(running.terms, max_lease=DEFAULT_MAX_LEASE_SECONDS)
    if compare(measured, endless, choice, worth).fault:
        reason = reason_of(measured, choice.best, why=why, in_use=in_use, is_safe=choice.is_safe)
        return row_of(measured, choice.best, RECOMMENDED, max_lease, reason)
    reason = reason_of(measured, in_use, why=why)
    return row_of(measured, in_use, RECOMMENDED, max_lease, reason, running.interval)


def running_row(measured: Measured, running: Running, worth: Worth) -> Row:
    """Return the expectation for the settings that most of the queue's messages had."""
    received = measured.timeouts[running.terms.visibility_timeout]
    return row_of(
        measured,
        replay(measured, running.terms, worth),
        RUNNING,
        running.terms.max_lease,
        f"{received:,} of {measured.messages:,} attempts were received with these settings",
        running.interval,
    )
