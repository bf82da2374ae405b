"""The circumstances of a world, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.sqs.clients import MAX_TIMEOUT, MIN_TIMEOUT, TIMEOUT_PART
from celery_sqs_heartbeat.testing import Fault

#: Visibility timeouts, in seconds, from short to long.
TIMEOUTS = (4, 10, 30, 120, 600, 1800)
#: How long a world lasts, in visibility timeouts.
LENGTH = 240
#: Each worker's keeper runs in the worker's process, or in its own process.
WITHIN, APART = ("calm", "storm"), ("calm-apart", "storm-apart")
#: The same kinds, with message groups whose order is kept.
ORDERED = ("calm-fifo", "storm-fifo", "calm-fifo-apart", "storm-fifo-apart")
KINDS = WITHIN + APART + ORDERED
#: Which worlds of either kind meet these troubles: one in so many, the seeds with that rest. The
#: other worlds stay unchanged, and so do the seeds that once broke an invariant.
MET = {
    "a queue that changes": (4, 1),
    "two queues": (4, 3),
    "refused deletes": (5, 3),
    "calls that fail afterwards": (7, 6),
    "a server that holds calls": (8, 1),
    "a server that stalls at a start": (8, 2),
    "a busy machine": (8, 5),
}
#: How often SQS executes a call but answers it with a 500, in a calm world and in a storm. The
#: caller can't know that it took effect.
AFTERWARDS_CALM, AFTERWARDS_STORM = 0.02, 0.1


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One world's circumstances. Times in seconds, rates from 0 to 1.

    Attributes:
        is_calm: No fault is severe enough to cost a lease, so no lease may be lost.
        call_timeout: A caller gives up after this time without an answer.
        mean_task: The mean of the tasks' run times, which vary widely.
        disturbance: Mean time between two disturbances of one worker.
        duplicate_rate: How often SQS delivers a message that is in flight.
    """

    is_calm: bool
    terms: LeaseTerms
    is_fifo: bool
    max_receive_count: int | None
    late_extension: bool
    workers: int
    concurrency: int
    prefetch: int
    seconds: float
    mean_task: float
    failing: float
    poison: float
    call_timeout: float
    disturbance: float
    duplicate_rate: float
    changing: Fault
    deleting: Fault
    receiving: Fault


def meets(seed: int, trouble: str) -> bool:
    """Return whether the worlds of a seed meet a trouble, one of `MET`."""
    every, rest = MET[trouble]
    return seed % every == rest


def is_ordered(kind: str) -> bool:
    """Return whether the order of message groups is kept in worlds of a kind."""
    return kind in ORDERED


def patience(threshold: float) -> float:
    """Return after how many seconds a caller gives up, as in `short_config`."""
    return min(max(threshold * TIMEOUT_PART, MIN_TIMEOUT), MAX_TIMEOUT)


def draw(kind: str, generator: random.Random) -> Profile:
    """Draw a world of a kind, one of `KINDS`."""
    is_calm = kind.startswith("calm")
    timeout = generator.choice(TIMEOUTS)
    is_eager = generator.random() < 0.2
    terms = LeaseTerms(
        visibility_timeout=timeout,
        threshold=timeout * generator.choice((0.2, 1 / 3, 0.5)),
        max_lease=43_195 if is_calm or not is_eager else timeout * generator.uniform(2, 20),
    )
    call_timeout = patience(terms.threshold)
    bad = 0.0 if is_calm else generator.choice((0.0, 0.05, 0.3))
    # In a calm world a call is answered before it is given up, however slow it is.
    latency = generator.uniform(0.001, 0.02 if is_calm else call_timeout / 3)
    jitter = generator.uniform(0, 0.05 if is_calm else call_timeout)
    return Profile(
        is_calm=is_calm,
        terms=terms,
        is_fifo=generator.random() < 0.3 or is_ordered(kind),
        max_receive_count=generator.choice((None, 5, 8)),
        late_extension=generator.random() < 0.5,
        workers=generator.randint(1, 4),
        concurrency=generator.randint(1, 4),
        prefetch=generator.randint(1, 4) * 2,
        seconds=timeout * LENGTH,
        mean_task=timeout * generator.choice((0.3, 1.5, 6.0)),
        failing=generator.choice((0.0, 0.1)),
        poison=generator.choice((0.0, 0.02)),
        call_timeout=call_timeout,
        disturbance=timeout * generator.uniform(20, 60),
        duplicate_rate=0.0 if is_calm else generator.choice((0.0, 0.001)),
        changing=Fault(
            latency=latency,
            jitter=jitter,
            lost_request=bad / 3,
            lost_answer=bad / 3,
            throttled=bad / 3,
            failed=0.02 if is_calm else bad,
            entry_failed=0.02 if is_calm else bad,
            entry_throttled=bad / 3,
        ),
        deleting=Fault(
            latency=latency,
            jitter=jitter,
            lost_answer=bad / 3,
            throttled=bad,
            failed=0.02 if is_calm else bad,
            entry_failed=0.02 if is_calm else bad,
        ),
        receiving=Fault(latency=latency, jitter=jitter, lost_answer=bad / 10),
    )


def failing_afterwards(fault: Fault, is_calm: bool) -> Fault:
    """Return the fault, with calls added that fail after SQS has executed them."""
    return replace(fault, failed_after=AFTERWARDS_CALM if is_calm else AFTERWARDS_STORM)


def quickened(profile: Profile, threshold: float) -> Profile:
    """Return a world whose network also answers callers that hurry for leases of a threshold.

    Otherwise next to none of their calls would be answered in time. Such a world tests little, and
    takes as long as a hundred others.
    """
    part = min(1.0, patience(threshold) / profile.call_timeout)

    def quick(fault: Fault) -> Fault:
        return replace(fault, latency=part * fault.latency, jitter=part * fault.jitter)

    return replace(
        profile,
        changing=quick(profile.changing),
        deleting=quick(profile.deleting),
        receiving=quick(profile.receiving),
    )
