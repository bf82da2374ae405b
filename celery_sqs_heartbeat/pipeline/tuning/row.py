"""A row of `recommendations`: settings, and what to expect of them."""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.tuning.choosing import terms_of
from celery_sqs_heartbeat.pipeline.tuning.confidence import confidence_of, least_risk
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured
from celery_sqs_heartbeat.pipeline.tuning.replay import Expected
from celery_sqs_heartbeat.pipeline.tuning.running_settings import default_interval

RECOMMENDED = 0
RUNNING = -1


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
    risk: float
    least_risk: float
    objective: float
    messages: int
    confidence: str
    reason: str

    def is_of(self, expected: Expected) -> bool:
        """Return whether it has the same visibility timeout and threshold."""
        return (self.visibility_timeout, self.threshold) == (
            expected.visibility_timeout,
            expected.threshold,
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
        # Spark does not accept an integer as a double.
        threshold=float(terms.threshold),
        interval=float(interval or default_interval(terms.threshold)),
        max_lease=float(max(max_lease, terms.visibility_timeout)),
        calls_per_1000=expected.calls_per_1000,
        recovery_s=expected.recovery_s,
        risk=expected.risk,
        least_risk=least_risk(measured),
        objective=expected.objective,
        messages=measured.messages,
        confidence=confidence_of(measured),
        reason=reason,
    )
