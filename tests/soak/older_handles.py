"""Calls by the handle of an earlier receive that end or shorten the lease of a later one."""

from __future__ import annotations

from tests.soak.blocks import Block, free
from tests.soak.delivery import HASTE, Delivery
from tests.soak.releases import why_released
from tests.soak.table import DELAYED, DISTURBED, Cause
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import knowledge_of

_WHY = Cause(DELAYED, "a release was delayed until its lease had expired")


def why_released_late(delivery: Delivery, histories: dict[str, WorkerHistory]) -> Cause | None:
    """Return why a release by an older handle arrived after this receive."""
    assert delivery.ended_by is not None
    call, entry = delivery.ended_by
    sender = next(each for each in delivery.before() if each.entry.handle == entry.handle)
    history = histories[call.worker]
    delayed = Block(why=_WHY, start=call.started, end=call.done)
    if free(sender.visible_at, call.done, [*history.blocks, delayed]) < HASTE:
        return _WHY
    if sender.ended_by is None or sender.ended_by[1].handle == sender.entry.handle:
        return None
    # An older release had ended the sender's own lease, and the sender could not know.
    is_sure = call.started < knowledge_of(sender, history).ends
    return _WHY if is_sure and why_released(sender, history, call.started) else None


def why_cut_short(delivery: Delivery) -> Cause | None:
    """Return whether the last call that moved its expiry was an extension by an older handle."""
    for earlier in delivery.before():
        if (
            earlier.worker != delivery.worker
            and _has_moved(earlier, delivery)
            and _may_extend_late(earlier)
        ):
            return Cause(DISTURBED, "the owner of an older lease set a shorter timeout")
    return None


def _has_moved(earlier: Delivery, delivery: Delivery) -> bool:
    return any(
        entry.done
        and call.forwarded > delivery.receive.done
        and call.done + entry.timeout == delivery.visible_at
        for call, entry in earlier.changes
    )


def _may_extend_late(earlier: Delivery) -> bool:
    """Return whether it extended its expired lease within one timeout."""
    late = [call.started for call, _ in earlier.changes if call.started > earlier.visible_at]
    timeouts = [entry.timeout for _, entry in earlier.changes]
    return bool(late) and min(late) < earlier.visible_at + max([earlier.timeout, *timeouts])
