"""Compares an app's settings with the recommended ones."""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.phrases import span
from celery_sqs_heartbeat.pipeline.tuning.choosing import RISK_CAP, Choice
from celery_sqs_heartbeat.pipeline.tuning.confidence import (
    confidence_of,
    least_risk,
    part_of_attempts,
)
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured
from celery_sqs_heartbeat.pipeline.tuning.replay import Expected, Worth, replay

#: Settings are worse when their objective is more than this many times the recommended one's
#: and more than the least difference above it, in dollars for 1,000 attempts.
WORSE_BY = 1.5
LEAST_DIFFERENCE = 1e-4


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


def compare(measured: Measured, terms: LeaseTerms, choice: Choice, worth: Worth) -> Verdict:
    """Return whether settings are worse than the recommended ones, by the margin above."""
    return Verdict(
        queue=measured.queue,
        task=measured.task,
        visibility_timeout=terms.visibility_timeout,
        threshold=terms.threshold,
        confidence=confidence_of(measured),
        fault=_fault(measured, terms, choice, replay(measured, terms, worth)),
    )


def _fault(measured: Measured, terms: LeaseTerms, choice: Choice, expected: Expected) -> str:
    best = choice.best
    if confidence_of(measured) == "low":
        return ""
    if expected.risk > RISK_CAP >= best.risk:
        accepted = f"{part_of_attempts(RISK_CAP)} attempts, which is the most that is accepted"
        if expected.risk < least_risk(measured):
            return f"extensions may come too late in more than {accepted}"
        part = part_of_attempts(expected.risk)
        return f"extensions would come too late in {part} attempts: more than {accepted}"
    longest = measured.held.quantile(0.999)
    if longest is not None and longest / 1e6 > terms.max_lease:
        return (
            f"max_lease={terms.max_lease:g} is too short: 1 of 1,000 attempts takes "
            f"{span(longest)} or more"
        )
    if expected.objective > max(WORSE_BY * best.objective, best.objective + LEAST_DIFFERENCE):
        return (
            "calls, waits after crashes and duplicates would cost "
            f"{expected.objective / best.objective:,.1f} times as much as with "
            f"visibility_timeout={best.visibility_timeout} and threshold={best.threshold:g}"
        )
    return ""
