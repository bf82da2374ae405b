"""What a worker could know about its lease, which may be less than SQS granted.

An extension does not count if its answer was lost. If its answer was late, no one can tell who has
the message. A worker that should release the message then leaves it to its timeout, because a
release by a stale handle would end the lease of the new owner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.soak.blocks import Block, after, free
from tests.soak.delivery import HASTE, Delivery
from tests.soak.releases import GRACE, why_released
from tests.soak.stale_calls import longest_hold
from tests.soak.table import Cause
from tests.soak.worker_history import WorkerHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKnowledge:
    """When a lease expired as far as its worker knew, and whether the lease was certain.

    Attributes:
        first_expired_at: When it expired for the first time. A late extension may have saved it.
    """

    ends: float
    is_certain: bool
    first_expired_at: float


def knowledge_of(
    delivery: Delivery, history: WorkerHistory, by: float = math.inf
) -> WorkerKnowledge:
    """Return what a worker knew about the lease of a receive.

    Args:
        by: A later answer does not count.
    """
    most = longest_hold(delivery)
    ends = delivery.receive.started + min(delivery.timeout, most)
    is_certain, first_expired_at = True, math.inf
    told = [
        (call, entry.timeout)
        for call, entry in delivery.extensions
        if delivery.is_known(call, entry) and call.ended <= by
    ]
    for call, timeout in sorted(told, key=lambda each: each[0].ended):
        if call.ended >= ends and _was_stopped_by(delivery, call.ended + HASTE):
            # It saved nothing: the task had already been stopped.
            break
        first_expired_at = min(first_expired_at, ends if call.ended >= ends else math.inf)
        # A worker that is stopped right after the answer was sent reads it only afterwards.
        is_certain = is_certain and after(call.ended + HASTE, history.blocks) < ends
        ends = max(ends, call.started + min(timeout, most))
    return WorkerKnowledge(
        ends=ends, is_certain=is_certain, first_expired_at=min(first_expired_at, ends)
    )


def why_not_released(
    delivery: Delivery, history: WorkerHistory, blocks: list[Block]
) -> Cause | None:
    """Return why a message that should have been released was left to its timeout, if it was."""
    why = why_released(delivery, history, min(delivery.visible_at, history.info.ended))
    knowledge = knowledge_of(delivery, history)
    if why is None:
        return None
    if not knowledge.is_certain:
        return why.but("but an extension was confirmed too late")
    if history.end.start <= knowledge.ends <= history.end.end:
        return None
    had_reason = why_released(delivery, history, knowledge.ends - GRACE) is not None
    if had_reason and free(knowledge.ends - GRACE, knowledge.ends, blocks) > HASTE:
        return None
    return why.but("but its worker counted the lease as expired")


def _was_stopped_by(delivery: Delivery, at: float) -> bool:
    """Return whether its worker had stopped the task by then because its lease was lost."""
    run = delivery.run
    return run is not None and run.outcome == "stop" and run.ended <= at
