"""What a worker or its keeper leaves to the other has to be taken up in time."""

from __future__ import annotations

from tests.soak.blocks import Block, free
from tests.soak.delays import SAFE_TIMEOUT
from tests.soak.delivery import HASTE, Delivery
from tests.soak.releases import why_released
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import belief_of


def had_to_be_released(tenure: Delivery, life: WorkerHistory, blocks: list[Block]) -> bool:
    """Return whether the keeper of a worker that was killed had the time to release it."""
    belief = belief_of(tenure, life)
    is_wanted = why_released(tenure, life, max(tenure.receive.done, life.info.ended)) is not None
    is_known = life.was_killed and belief.is_certain and is_wanted
    return is_known and free(life.info.ended, belief.ends, blocks) > HASTE


def is_kept_by_the_next_keeper(
    tenure: Delivery, life: WorkerHistory, due: float, end: float, blocks: list[Block]
) -> bool:
    """Return whether nothing but the death of a keeper could have cost a lease that outlasts it."""
    timeouts = [entry.timeout for _, entry in tenure.changes if entry.timeout]
    if min([tenure.timeout, *timeouts]) < SAFE_TIMEOUT:
        return False
    brief = [down.block for down in life.downs if down.is_brief and not down.is_for_good]
    rest = [block for block in blocks if block not in brief]
    return free(due, end, rest) >= end - due - HASTE
