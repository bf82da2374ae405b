"""How reliable the figures are."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.tuning.lateness import RULE_OF_THREE
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured

#: With this many attempts or calls, ten or more are beyond the 99.9 % quantile.
MANY = 10_000
#: With this many, one is.
ENOUGH = 1_000


def confidence_of(measured: Measured) -> str:
    """Return `high`, `medium` or `low`, by the numbers of calls and of attempts that ended."""
    ended = measured.held.ended
    if ended < ENOUGH or ended < measured.messages / 2:
        return "low"
    calls = measured.latency.count
    return "high" if ended >= MANY and calls >= ENOUGH else "medium"


def least_risk(measured: Measured) -> float:
    """Return the smallest chance that the attempts can show, if none of them lost its lease.

    It is an upper bound that is right in 95 of 100 cases, based on attempts that ended.
    """
    return min(1.0, RULE_OF_THREE / max(1, measured.held.ended))


def part_of_attempts(risk: float, least: float = 0.0) -> str:
    """Return a chance in words, but no figure that the measured attempts do not support.

    It is empty if they are so few that they can't show even "less than 1 of 2".

    Args:
        risk: More than 0, unless `least` is given.
        least: The smallest chance that they can show.
    """
    if risk >= least and least < 1:
        return f"1 of {1 / risk:,.0f}"
    shown = math.floor(1 / least)
    return f"less than 1 of {shown:,}" if shown > 1 else ""


def how_sure(measured: Measured) -> str:
    """Return the confidence in a sentence, with what is missing for a higher one."""
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
        basis = f"{calls} with a known time, {ENOUGH:,} are needed for high"
    return f"Confidence is {confidence}: {basis}."
