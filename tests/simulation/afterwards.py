"""Calls that SQS executes but answers with a 500: their caller can't know that they took effect."""

from __future__ import annotations

from dataclasses import replace

from celery_sqs_heartbeat.testing import Fault

#: One world in so many has them. The other worlds stay unchanged, and so do the seeds that once
#: broke an invariant.
EVERY, REST = 7, 6
#: How often such calls happen, in a calm world and in a storm.
CALM, STORM = 0.02, 0.1


def may_fail_afterwards(seed: int) -> bool:
    """Return whether calls in a seed's worlds may fail after SQS has executed them."""
    return seed % EVERY == REST


def failing_afterwards(fault: Fault, is_calm: bool) -> Fault:
    """Return the fault, with such failures added."""
    return replace(fault, failed_after=CALM if is_calm else STORM)
