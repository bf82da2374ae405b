"""The rule for a number of seconds."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.values import is_number
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS


def number_fault(value: Any, *, above: float | None = None, low: float = 0) -> str | None:
    """Check a number of seconds up to SQS's 12 hours."""
    if not is_number(value):
        return f"must be a number of seconds, not {type(value).__name__}"
    if above is not None and not above < value <= MAX_VISIBILITY_SECONDS:
        return f"must be above {above:g} and at most {MAX_VISIBILITY_SECONDS} seconds"
    if above is None and not low <= value <= MAX_VISIBILITY_SECONDS:
        return f"must be {low:g} to {MAX_VISIBILITY_SECONDS} seconds"
    return None
