"""What a worker could know of its lease, which may be less than SQS had granted.

An extension whose answer was lost or late counts for nothing, or makes it unknowable whose the
message is. Then a worker that is to give it back leaves it to its timeout: a release by a
stale handle would break the lease of whoever has it by now.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.soak.blocks import Block, after, free
from tests.soak.delivery import HASTE, Delivery
from tests.soak.model import CHANGE
from tests.soak.releases import GRACE, why_released
from tests.soak.stale_calls import longest_hold
from tests.soak.table import Cause
from tests.soak.worker_history import WorkerHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKnowledge:
    """When the lease was over as far as its worker knew, and whether it was sure of that.

    Attributes:
        lapsed: When it was over for the first time: a late extension may have saved it.
    """

    ends: float
    is_certain: bool
    lapsed: float


def knowledge_of(
    delivery: Delivery, history: WorkerHistory, by: float = math.inf
) -> WorkerKnowledge:
    """Return what the worker of a receive had been told by the end of the lease.

    Args:
        by: An answer that came later does not count.
    """
    most = longest_hold(delivery)
    ends = delivery.receive.started + min(delivery.timeout, most)
    is_certain, lapsed = True, math.inf
    told = [
        (call, entry.timeout)
        for call, entry in delivery.changes
        if call.operation == CHANGE
        and call.worker == delivery.worker
        and delivery.is_known(call, entry)
        and call.ended <= by
        and entry.timeout >= delivery.queue.shortest
    ]
    for call, timeout in sorted(told, key=lambda each: each[0].ended):
        if call.ended >= ends and _was_stopped_by(delivery, call.ended + HASTE):
            # It saved nothing: the task was stopped for what was known before it.
            break
        lapsed = min(lapsed, ends if call.ended >= ends else math.inf)
        # A worker that stands still right after an answer was sent reads it only then.
        is_certain = is_certain and after(call.ended + HASTE, history.blocks) < ends
        ends = max(ends, call.started + min(timeout, most))
    return WorkerKnowledge(ends=ends, is_certain=is_certain, lapsed=min(lapsed, ends))


def why_not_released(
    delivery: Delivery, history: WorkerHistory, blocks: list[Block]
) -> Cause | None:
    """Return why a message that was to be given back was left to its timeout, if it was."""
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
    """Return whether its worker had stopped the task for its lost lease by then."""
    run = delivery.run
    return run is not None and run.outcome == "stop" and run.ended <= at
