"""Explains recommended settings: why, what to expect of them, and with what confidence.

An attempt is one receive of a message by a worker. A message that is received again is one more.
"""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.phrases import at_most, count, sentence
from celery_sqs_heartbeat.pipeline.tuning.choosing import RISK_CAP
from celery_sqs_heartbeat.pipeline.tuning.confidence import (
    ENOUGH,
    confidence_of,
    how_sure,
    least_risk,
    part_of_attempts,
)
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured
from celery_sqs_heartbeat.pipeline.tuning.replay import Expected

#: With fewer attempts, a median means nothing.
_FEW = 3


def reason_of(
    measured: Measured,
    expected: Expected,
    *,
    why: str = "",
    in_use: Expected | None = None,
    is_safe: bool = True,
) -> str:
    """Return the sentences about recommended settings.

    Args:
        why: Why they are better, or why the current ones stay; may be empty.
        in_use: The expectation for the current settings, if these are others.
        is_safe: Whether any candidate is below the cap of risk.
    """
    sentences = [sentence(why)] if why else []
    sentences += [_expected(expected, in_use), _lost(measured, expected)]
    if not is_safe:
        sentences.append(
            f"Every candidate loses more than {part_of_attempts(RISK_CAP)} leases. "
            "This one loses the fewest."
        )
    sentences.append(_held(measured))
    return " ".join([*sentences, how_sure(measured)])


def why_kept(measured: Measured) -> str:
    """Return why the current settings stay."""
    if confidence_of(measured) == "low":
        return "there is too little data to recommend a change"
    return "no candidate is clearly better than the current settings"


def _expected(expected: Expected, in_use: Expected | None) -> str:
    calls = count(round(expected.calls_per_1000), "extension call")
    recovery = f"{expected.recovery_s:,.0f} s"
    if in_use is not None:
        calls += f" instead of {in_use.calls_per_1000:,.0f}"
        recovery += f" instead of {in_use.recovery_s:,.0f} s"
    return (
        f"1,000 attempts would take {calls}. After a crash, a message would be visible again in "
        f"{recovery}."
    )


def _lost(measured: Measured, expected: Expected) -> str:
    least = least_risk(measured)
    part = part_of_attempts(expected.risk, least)
    if not part:
        return "The data cannot show how many attempts would lose their lease."
    if expected.risk >= least:
        return f"{part} attempts would lose its lease."
    return f"{sentence(part)[:-1]} attempts would lose its lease; the data cannot show less."


def _held(measured: Measured) -> str:
    """Return how long messages are held."""
    held = measured.held
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
