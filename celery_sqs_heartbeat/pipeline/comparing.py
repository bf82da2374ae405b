"""Compares the settings that an app has with those that are recommended."""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.core.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.choosing import RISK_CAP, Choice
from celery_sqs_heartbeat.pipeline.confidence import confidence_of, least_risk, part_of_messages
from celery_sqs_heartbeat.pipeline.measured import Measured
from celery_sqs_heartbeat.pipeline.replay import Expected, Worth, replay

#: Settings are worse when their objective is more than this many times the recommended one's
#: and more than the least difference above it, in dollars for 1,000 messages.
WORSE_BY = 1.5
LEAST_DIFFERENCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found of a queue's, or a task's, settings.

    Attributes:
        fault: Why they are worse than the recommended ones; empty where they are not.
    """

    queue: str
    task: str | None
    visibility_timeout: int
    threshold: float
    fault: str = ""


def compare(measured: Measured, terms: LeaseTerms, choice: Choice, worth: Worth) -> Verdict:
    """Return whether settings are worse than the recommended ones, by the margin above."""
    return Verdict(
        queue=measured.queue,
        task=measured.task,
        visibility_timeout=terms.visibility_timeout,
        threshold=terms.threshold,
        fault=_fault(measured, terms, choice, replay(measured, terms, worth)),
    )


def _fault(measured: Measured, terms: LeaseTerms, choice: Choice, expected: Expected) -> str:
    best = choice.best
    if confidence_of(measured) == "low":
        return ""
    if expected.risk > RISK_CAP >= best.risk:
        most = part_of_messages(RISK_CAP)
        if expected.risk < least_risk(measured):
            return f"more than {most} may lose its lease, which is the most that is taken"
        return f"{part_of_messages(expected.risk)} would lose its lease; {most} is the most taken"
    longest = measured.held.quantile(0.999)
    if longest is not None and longest / 1e6 > terms.max_lease:
        return (
            f"max_lease={terms.max_lease:g} is shorter than the {longest / 1e6:,.0f} s that 1 "
            "message of 1,000 takes"
        )
    if expected.objective > max(WORSE_BY * best.objective, best.objective + LEAST_DIFFERENCE):
        return (
            f"{expected.calls_per_1000:,.0f} calls for 1,000 messages and "
            f"{expected.recovery_s:,.0f} s to recover; recommended are "
            f"{best.calls_per_1000:,.0f} and {best.recovery_s:,.0f} s"
        )
    return ""
