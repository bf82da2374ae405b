"""How far figures can be trusted."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.lateness import RULE_OF_THREE
from celery_sqs_heartbeat.pipeline.measured import Measured

#: Messages, and calls, from which a quantile of 99.9 % has ten or more beyond it.
MANY = 10_000
#: Those from which it has one.
ENOUGH = 1_000


def confidence_of(measured: Measured) -> str:
    """Return `high`, `medium` or `low`: by messages with a known end, and by calls."""
    ended = measured.held.ended
    if ended < ENOUGH or ended < measured.messages / 2:
        return "low"
    calls = measured.latency.count
    return "high" if ended >= MANY and calls >= ENOUGH else "medium"


def least_risk(measured: Measured) -> float:
    """Return the smallest chance that the messages can show: none of them lost its lease.

    It is an upper bound that holds in 95 of 100 cases, of messages with a known end.
    """
    return min(1.0, RULE_OF_THREE / max(1, measured.held.ended))


def part_of_messages(risk: float, least: float = 0.0) -> str:
    """Return a chance in words: no figure beyond what the messages that were seen support.

    Args:
        risk: More than 0, or there is a `least`.
        least: The smallest that they can show.
    """
    if least >= 1:
        return "an unknown part of the messages"
    if risk >= least:
        return f"1 message of {1 / risk:,.0f}"
    return f"fewer than 1 message of {1 / least:,.0f}, the least that the data can show"


def why_not_high(measured: Measured) -> str:
    """Return what the data lacks for `high`; empty where it lacks nothing."""
    ended = measured.held.ended
    calls = measured.latency.count
    if confidence_of(measured) == "high":
        return ""
    if ended < measured.messages / 2:
        return f"only {ended:,} of {measured.messages:,} messages were seen to their end"
    if ended < MANY:
        return f"thin data: {ended:,} messages, {MANY:,} would be enough"
    return f"thin data: {calls:,} extensions, {ENOUGH:,} would be enough"
