"""How far figures can be trusted."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.tuning.lateness import RULE_OF_THREE
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured

#: Attempts, and calls, from which a quantile of 99.9 % has ten or more beyond it.
MANY = 10_000
#: Those from which it has one.
ENOUGH = 1_000


def confidence_of(measured: Measured) -> str:
    """Return `high`, `medium` or `low`: by attempts with a known end, and by calls."""
    ended = measured.held.ended
    if ended < ENOUGH or ended < measured.messages / 2:
        return "low"
    calls = measured.latency.count
    return "high" if ended >= MANY and calls >= ENOUGH else "medium"


def least_risk(measured: Measured) -> float:
    """Return the smallest chance that the attempts can show: none of them lost its lease.

    It is an upper bound that holds in 95 of 100 cases, of attempts with a known end.
    """
    return min(1.0, RULE_OF_THREE / max(1, measured.held.ended))


def part_of_attempts(risk: float, least: float = 0.0) -> str:
    """Return a chance in words: no figure beyond what the attempts that were seen support.

    Empty where they are so few that they can't show even half of it.

    Args:
        risk: More than 0, or there is a `least`.
        least: The smallest that they can show.
    """
    if risk >= least and least < 1:
        return f"1 of {1 / risk:,.0f}"
    shown = math.floor(1 / least)
    return f"less than 1 of {shown:,}" if shown > 1 else ""


def how_sure(measured: Measured) -> str:
    """Return the confidence in a sentence, with what the data lacks for more."""
    ended, of_all = measured.held.ended, measured.messages
    confidence = confidence_of(measured)
    basis = count(max(ended, of_all), "attempt")
    if ended < of_all:
        basis = f"{ended:,} of {basis}"
    basis += " has ended" if of_all == ended == 1 else " have ended"
    if ended < of_all / 2:
        return f"Confidence is {confidence}: only {basis}."
    if ended < ENOUGH:
        basis += f", {ENOUGH:,} are needed for medium"
    elif ended < MANY:
        basis += f", {MANY:,} are needed for high"
    elif confidence != "high":
        calls = count(measured.latency.count, "extension call")
        basis = f"{calls} told of their time, {ENOUGH:,} are needed for high"
    return f"Confidence is {confidence}: {basis}."
