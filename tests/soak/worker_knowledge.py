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
from tests.soak.strays import longest_hold
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


def belief_of(tenure: Delivery, life: WorkerHistory, by: float = math.inf) -> WorkerKnowledge:
    """Return what the worker of a receive had been told by the end of the lease.

    Args:
        by: An answer that came later does not count.
    """
    most = longest_hold(tenure)
    ends = tenure.receive.started + min(tenure.timeout, most)
    is_certain, lapsed = True, math.inf
    told = [
        (call, entry.timeout)
        for call, entry in tenure.changes
        if call.operation == CHANGE
        and call.worker == tenure.worker
        and tenure.is_known(call, entry)
        and call.ended <= by
        and entry.timeout >= tenure.queue.shortest
    ]
    for call, timeout in sorted(told, key=lambda each: each[0].ended):
        if call.ended >= ends and _was_stopped_by(tenure, call.ended + HASTE):
            # It saved nothing: the task was stopped for what was known before it.
            break
        lapsed = min(lapsed, ends if call.ended >= ends else math.inf)
        # A worker that stands still right after an answer was sent reads it only then.
        is_certain = is_certain and after(call.ended + HASTE, life.blocks) < ends
        ends = max(ends, call.started + min(timeout, most))
    return WorkerKnowledge(ends=ends, is_certain=is_certain, lapsed=min(lapsed, ends))


def why_not_released(tenure: Delivery, life: WorkerHistory, blocks: list[Block]) -> Cause | None:
    """Return why a message that was to be given back was left to its timeout, if it was."""
    why = why_released(tenure, life, min(tenure.visible_at, life.info.ended))
    belief = belief_of(tenure, life)
    if why is None:
        return None
    if not belief.is_certain:
        return why.but("after an extension that was confirmed too late")
    if life.end.start <= belief.ends <= life.end.end:
        return None
    had_reason = why_released(tenure, life, belief.ends - GRACE) is not None
    if had_reason and free(belief.ends - GRACE, belief.ends, blocks) > HASTE:
        return None
    return why.but("and by what it knew its lease was over")


def _was_stopped_by(tenure: Delivery, at: float) -> bool:
    """Return whether its worker had stopped the task for its lost lease by then."""
    run = tenure.run
    return run is not None and run.outcome == "stop" and run.ended <= at
