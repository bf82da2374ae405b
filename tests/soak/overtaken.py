"""Releases by the handle of an earlier receive, which end the lease of a later one."""

from __future__ import annotations

from tests.soak.blocks import Block, free
from tests.soak.delivery import HASTE, Delivery
from tests.soak.releases import why_released
from tests.soak.table import HELD_UP, Cause
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import belief_of

_WHY = Cause(HELD_UP, "a release was held up until its lease was over")


def why_released_late(tenure: Delivery, lives: dict[str, WorkerHistory]) -> Cause | None:
    """Return why a release came by a handle of the past, when this receive had begun."""
    assert tenure.ended_by is not None
    call, entry = tenure.ended_by
    sender = next(each for each in tenure.before() if each.entry.handle == entry.handle)
    life = lives[call.worker]
    held_up = Block(why=_WHY, start=call.started, end=call.done)
    if free(sender.visible_at, call.done, [*life.blocks, held_up]) < HASTE:
        return _WHY
    if sender.ended_by is None or sender.ended_by[1].handle == sender.entry.handle:
        return None
    # Its own lease was ended by such a release, of which it could not know.
    is_sure = call.started < belief_of(sender, life).ends
    return _WHY if is_sure and why_released(sender, life, call.started) else None
