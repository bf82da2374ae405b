"""What a worker did not do with a message, for a release of it that might still be done."""

from __future__ import annotations

from tests.soak.blocks import after, free
from tests.soak.cut import why_cut
from tests.soak.delivery import HASTE, Delivery
from tests.soak.model import Call
from tests.soak.reading import why_unread
from tests.soak.releases import why_released
from tests.soak.stale_calls import may_still_be_done
from tests.soak.table import DELAYED, Cause
from tests.soak.worker_history import STARVATION, WorkerHistory
from tests.soak.worker_knowledge import knowledge_of


def why_set_aside(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return whether it was not run as an older release by its worker was not answered yet.

    Only the first time that it reads of it: one that hangs must not keep a message for good.
    """
    was_read = delivery.run is not None and delivery.run.count == delivery.count
    calls = [*delivery.changes, *delivery.deletes]
    earlier = next((each for each in delivery.before() if _was_read(each, delivery, history)), None)
    if was_read or earlier is None or any(call.worker == delivery.worker for call, _ in calls):
        return None
    if not _is_open(
        earlier, delivery.receive.ended, _received_again_at(delivery, history), history
    ):
        return None
    return Cause(DELAYED, "an older release of it was held up")


def why_left_to_its_timeout(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return why it was to be given back, where its worker could not be certain of its lease.

    If the older release is done meanwhile, another worker may have received the message, and a
    release by the stale handle would end that lease. An older release that was answered while the
    receive was under way may have been done after it.
    """
    why = why_released(delivery, history, min(delivery.visible_at, history.info.ended))
    received_again_at = _received_again_at(delivery, history)
    for earlier in delivery.before():
        if earlier.worker != delivery.worker:
            continue
        if why and _is_open(earlier, delivery.receive.started, received_again_at, history):
            return why.but("as an older release of it may still be done")
        received_again_at = _received_again_at(earlier, history)
    return None


def _received_again_at(delivery: Delivery, history: WorkerHistory) -> float:
    """Return when its worker read of it: one that stands still does not know since when it has."""
    return after(delivery.receive.ended, history.still)


def _was_read(earlier: Delivery, delivery: Delivery, history: WorkerHistory) -> bool:
    """Return whether the same worker knew of an earlier receive."""
    is_its_own = earlier.worker == delivery.worker
    return is_its_own and earlier.entry.told and why_unread(earlier, history) is None


def _is_open(
    earlier: Delivery, answered_by: float, received_again_at: float, history: WorkerHistory
) -> bool:
    """Return whether a release of an earlier receive may still be done.

    Not where the message came back before its lease was over: then that release was done.

    Args:
        answered_by: An answer later than this does not count.
        received_again_at: When its worker received the message again.
    """
    ends = knowledge_of(earlier, history, received_again_at).ends
    if received_again_at < ends:
        return False
    releases = [
        (call, entry)
        for call, entry in earlier.changes
        if call.worker == earlier.worker
        and entry.timeout < earlier.queue.shortest
        and call.started < received_again_at
    ]
    if why_cut(earlier, history) is not None or (
        not releases and _was_never_sent(earlier, history, ends)
    ):
        return True
    return any(
        may_still_be_done(earlier, call, entry, answered_by=answered_by)
        or _was_given_up(earlier, call, history, ends)
        for call, entry in releases
    )


def _was_never_sent(earlier: Delivery, history: WorkerHistory, ends: float) -> bool:
    """Return whether a keeper had no time for a release until the lease was over, at `ends`.

    It says so in its log, but its worker may have read the message again before it hears of it.
    """
    is_wanted = why_released(earlier, history, ends) is not None
    return is_wanted and earlier.message_id in history.unrepeated


def _was_given_up(earlier: Delivery, call: Call, history: WorkerHistory, ends: float) -> bool:
    """Return whether a keeper did not wait for the answer to a release any more, as its log says.

    It plans none when a lease is over: one that is sent then has waited for a CPU since. It counts
    its wait for the answer from the plan, too, which a busy machine may have used up.
    """
    starved = [block for block in history.still if block.why == STARVATION]
    planned = call.started - earlier.longest_patience
    was_starved = free(planned, call.started, starved) < HASTE
    return earlier.message_id in history.unrepeated and (call.started > ends or was_starved)
