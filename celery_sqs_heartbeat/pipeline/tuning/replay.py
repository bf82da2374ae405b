"""Replays measured messages with other settings.

It follows `leases/policy.py`: an extension is due when less than the threshold is left of the
visibility timeout, so once per `visibility_timeout - threshold`, counted from the receive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.policy import MAX_RETRY_SECONDS, implied_calls_per_second
from celery_sqs_heartbeat.pipeline.prices import COMPUTE_SECOND_USD, price_of
from celery_sqs_heartbeat.pipeline.tuning.lateness import chance_too_late
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured
from celery_sqs_heartbeat.settings.rules import CALLS_PER_SECOND

#: Visibility timeouts to try, in seconds. Each is about 1.3 times the one before.
TIMEOUTS = (
    *(10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 180, 240, 300, 400, 500, 600, 800),
    *(1000, 1200, 1500, 1800, 2400, 3000, 3600, 4800, 6000, 7200, 9600, 12000, 14400, 18000),
    *(24000, 30000, 36000, 43195),
)
#: Thresholds to try, as parts of the visibility timeout.
THRESHOLD_PARTS = (1 / 4, 1 / 3, 1 / 2)
#: The smallest threshold to try, in seconds. A failed extension may pause this long before its next
#: try, and a short network outage may not be in any journal yet.
LEAST_THRESHOLD = MAX_RETRY_SECONDS
#: Messages that a worker holds for each task that it can run: the running one, and four more by
#: Celery's default `worker_prefetch_multiplier`.
HELD_PER_SLOT = 5


@dataclass(frozen=True, kw_only=True)
class Worth:
    """Prices in dollars, which `objective` adds up. Put your own figures here.

    Attributes:
        waiting_second: A second that a message waits after a crash: 36 cents per hour.
        compute_second: A second that a task runs the second time.
        duplicate: A duplicate, in addition to its seconds: someone must check what ran twice.
    """

    waiting_second: float = 1e-4
    compute_second: float = COMPUTE_SECOND_USD
    duplicate: float = 0.01


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What to expect of some settings, with names as in `recommendations`."""

    visibility_timeout: int
    threshold: float
    calls_per_1000: float
    recovery_s: float
    risk: float
    objective: float


def candidates(measured: Measured) -> Iterator[LeaseTerms]:
    """Return the settings to try: those whose calls one worker's keeper can make."""
    leases = measured.fleet.concurrency * HELD_PER_SLOT
    for timeout in TIMEOUTS:
        for part in THRESHOLD_PARTS:
            threshold = round(timeout * part, 1)
            calls = implied_calls_per_second(
                leases, visibility_timeout=timeout, threshold=threshold
            )
            if threshold >= LEAST_THRESHOLD and calls <= CALLS_PER_SECOND:
                yield LeaseTerms.of(timeout, threshold)


def replay(measured: Measured, terms: LeaseTerms, worth: Worth) -> Expected:
    """Return what to expect of the settings, from the measured times."""
    timeout, threshold = terms.visibility_timeout, terms.threshold
    step = timeout - threshold
    held = [(us / 1e6, share) for us, share in measured.held.distribution]
    too_late = chance_too_late(measured, threshold)
    extensions = kept = since_extension = 0.0
    for seconds, share in held:
        number = math.floor(seconds / step)
        extensions += share * number
        kept += share * (1 - too_late) ** number
        rest = seconds - number * step
        since_extension += share * (number * step**2 + rest**2) / 2
    mean_held = sum(seconds * share for seconds, share in held)
    # A crash is equally likely at each moment that a message is held. The time left then is the
    # timeout, minus the time since the receive or the last extension.
    recovery = timeout - since_extension / mean_held if mean_held else float(timeout)
    calls = 1000 * extensions / measured.entries_per_call
    risk = max(0.0, 1 - kept) if held else 0.0
    crashes = 1000 * mean_held / 3600 * measured.crashes_per_hour()
    a_duplicate = worth.duplicate + measured.run.mean() / 1e6 * worth.compute_second
    return Expected(
        visibility_timeout=timeout,
        threshold=threshold,
        calls_per_1000=calls,
        recovery_s=recovery,
        risk=risk,
        objective=(
            calls * price_of(measured.queue)
            + crashes * recovery * worth.waiting_second
            + 1000 * risk * a_duplicate
        ),
    )
