"""Whether a keeper takes over in time from its worker, or from the keeper before it."""

from __future__ import annotations

from tests.soak.blocks import Block, free
from tests.soak.delays import SAFE_TIMEOUT
from tests.soak.delivery import HASTE, Delivery
from tests.soak.releases import why_released
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import knowledge_of


def should_have_been_released(
    delivery: Delivery, history: WorkerHistory, blocks: list[Block]
) -> bool:
    """Return whether the keeper of a worker that was killed had the time to release it."""
    knowledge = knowledge_of(delivery, history)
    is_wanted = (
        why_released(delivery, history, max(delivery.receive.done, history.info.ended)) is not None
    )
    is_known = history.was_killed and knowledge.is_certain and is_wanted
    return is_known and free(history.info.ended, knowledge.ends, blocks) > HASTE


def next_keeper_could_keep(
    delivery: Delivery, history: WorkerHistory, due: float, end: float, blocks: list[Block]
) -> bool:
    """Return whether only a keeper's death explains the loss of a lease that should survive it."""
    timeouts = [entry.timeout for _, entry in delivery.changes if entry.timeout]
    if min([delivery.timeout, *timeouts]) < SAFE_TIMEOUT:
        return False
    brief = [down.block for down in history.downs if down.is_brief and not down.is_for_good]
    rest = [block for block in blocks if block not in brief]
    return free(due, end, rest) >= end - due - HASTE
