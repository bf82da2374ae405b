"""Calls that SQS does and answers with a 500: their caller can't know that they were done."""

from __future__ import annotations

from dataclasses import replace

from celery_sqs_heartbeat.testing import Fault

#: One world in so many has them: the others, and the seeds that once broke an invariant, stay as
#: they are.
EVERY, REST = 7, 6
#: How often, in a calm world and in a storm.
CALM, STORM = 0.02, 0.1


def may_fail_afterwards(seed: int) -> bool:
    """Return whether calls of a seed's worlds fail after they were done."""
    return seed % EVERY == REST


def failing_afterwards(fault: Fault, is_calm: bool) -> Fault:
    """Return a fault to which that is added."""
    return replace(fault, failed_after=CALM if is_calm else STORM)
