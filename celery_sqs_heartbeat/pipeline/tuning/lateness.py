"""The chance that an extension comes too late."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.tables.bins import bin_of, middle_of
from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram
from celery_sqs_heartbeat.pipeline.tuning.measured import PRIOR_CALLS, PRIOR_LATENCY_US, Measured

#: Beyond the slowest measured call, calls of twice the duration are four times as rare. Networks
#: have such heavy tails.
TAIL_INDEX = 2.0
#: Rule of three: with 95 % confidence, something that never happened in n tries has a chance below
#: 3 / n.
RULE_OF_THREE = 3.0


def chance_too_late(measured: Measured, threshold: float) -> float:
    """Return the chance that a due extension takes longer than the threshold.

    Args:
        threshold: The threshold in seconds.
    """
    latency = measured.latency
    if not latency.count:
        latency = Histogram({bin_of(PRIOR_LATENCY_US): PRIOR_CALLS})
    limit_us = threshold * 1e6
    usual_us = latency.quantile(0.99) or latency.longest()
    slow_call = _chance_of_more(latency, limit_us)
    return min(1.0, slow_call + _chance_of_stall(measured, limit_us - usual_us))


def _chance_of_more(seen: Histogram, limit_us: float) -> float:
    """Return the chance of more; if none was seen, an upper bound that falls with the limit."""
    if more := seen.beyond(limit_us):
        return more / seen.count
    bound = min(1.0, RULE_OF_THREE / seen.count)
    return float(bound * min(1.0, seen.longest() / limit_us) ** TAIL_INDEX)


def _chance_of_stall(measured: Measured, limit_us: float) -> float:
    """Return the chance that an extension becomes due while the keeper stalls for longer still.

    That is the case during each stall, except for its last part, which is as long as the limit.
    """
    fleet = measured.fleet
    if not fleet.worker_us:
        return 0.0
    exposed = sum(
        max(0.0, middle_of(number) - max(limit_us, 0.0)) * count
        for number, count in fleet.stalls.spans.items()
    )
    return exposed / fleet.worker_us
