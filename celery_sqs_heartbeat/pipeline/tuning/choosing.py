"""Chooses settings from the replay of the candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS, LeaseTerms
from celery_sqs_heartbeat.pipeline.tuning.confidence import ENOUGH
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured
from celery_sqs_heartbeat.pipeline.tuning.replay import Expected, Worth, candidates, replay

#: Highest accepted chance of a lost lease, for one attempt. Settings beyond it are not chosen.
RISK_CAP = 1e-4
#: A `max_lease` that was too short becomes this many times as long as 999 of 1,000 attempts take.
SAFETY = 3.0
#: Tasks need no settings of their own if both they and their queue take fewer seconds than this.
LEAST_OWN = 200.0


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The recommendation.

    Attributes:
        curve: Candidates that no other one beats in both calls and recovery, fewest calls first.
        is_safe: Whether any candidate is below the cap of risk. Then all on the curve are.
    """

    best: Expected
    curve: Sequence[Expected]
    is_safe: bool


def choose(measured: Measured, worth: Worth) -> Choice:
    """Return the candidate with the least objective among those below the cap of risk."""
    tried = [replay(measured, terms, worth) for terms in candidates(measured)]
    safe = [each for each in tried if each.risk <= RISK_CAP]
    best = min(safe, key=_objective) if safe else min(tried, key=_risk)
    return Choice(
        best=best,
        curve=pareto(safe or [best]),
        is_safe=bool(safe),
    )


def pareto(tried: Sequence[Expected]) -> list[Expected]:
    """Return those that no other one beats in both calls and recovery, fewest calls first."""
    front: list[Expected] = []
    for each in sorted(tried, key=lambda one: (one.calls_per_1000, one.recovery_s, one.objective)):
        if not front or each.recovery_s < front[-1].recovery_s:
            front.append(each)
    return front


def raised(measured: Measured, max_lease: float) -> float:
    """Return a `max_lease` that cuts off no attempt: the given one, or a longer one.

    It is never lower. The longest attempt of a journal says nothing about the next one.
    """
    longest = measured.held.quantile(0.999)
    if longest is None or longest / 1e6 <= max_lease:
        return max_lease
    return min(60.0 * math.ceil(longest / 1e6 * SAFETY / 60), DEFAULT_MAX_LEASE_SECONDS)


def needs_its_own(task: Measured, queue: Measured) -> bool:
    """Return whether a task's attempts take more than twice as long, or less than half."""
    if task.held.ended < ENOUGH:
        return False
    return not 0.5 <= _longest(task) / _longest(queue) <= 2


def _longest(measured: Measured) -> float:
    """Return how many seconds 999 of 1,000 attempts take at most; the most if that is unknown."""
    longest = measured.held.quantile(0.999)
    if longest is None or measured.held.ended < ENOUGH:
        return DEFAULT_MAX_LEASE_SECONDS
    return min(max(longest / 1e6, LEAST_OWN), DEFAULT_MAX_LEASE_SECONDS)


def terms_of(each: Expected) -> LeaseTerms:
    """Return the settings of an expectation."""
    return LeaseTerms.of(each.visibility_timeout, each.threshold)


def _objective(each: Expected) -> tuple[float, int]:
    return each.objective, each.visibility_timeout


def _risk(each: Expected) -> tuple[float, float]:
    return each.risk, each.objective
