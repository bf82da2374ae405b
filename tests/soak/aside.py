"""Why a worker did not run or release a message: an older release might still take effect."""

from __future__ import annotations

from tests.soak.blocks import after, free
from tests.soak.cut import why_cut
from tests.soak.delivery import HASTE, Delivery
from tests.soak.model import Call
from tests.soak.reading import why_unread
from tests.soak.releases import why_released
from tests.soak.stale_calls import may_still_be_done
from tests.soak.table import DELAYED, Cause
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import knowledge_of


def why_set_aside(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return whether it was not run because its worker's older release was still unanswered.

    This explains only the first redelivery that the worker reads: a call that hangs must not block
    a message indefinitely.
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
    return Cause(DELAYED, "an older release of it was delayed")


def why_left_to_its_timeout(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return why it should have been released, if its worker could not be certain of its lease.

    If SQS carries out the older release meanwhile, another worker may receive the message. A
    release by the stale handle would then end that worker's lease. SQS may have carried out an
    older release after the receive, even if it answered while the receive was under way.
    """
    why = why_released(delivery, history, min(delivery.visible_at, history.info.ended))
    received_again_at = _received_again_at(delivery, history)
    for earlier in delivery.before():
        if earlier.worker != delivery.worker:
            continue
        if why and _is_open(earlier, delivery.receive.started, received_again_at, history):
            return why.but("but an older release may still take effect")
        received_again_at = _received_again_at(earlier, history)
    return None


def _received_again_at(delivery: Delivery, history: WorkerHistory) -> float:
    """Return when its keeper read it: a stopped keeper does not know when it arrived."""
    return after(delivery.receive.ended, history.halts)


def _was_read(earlier: Delivery, delivery: Delivery, history: WorkerHistory) -> bool:
    """Return whether the same worker knew of an earlier receive."""
    is_its_own = earlier.worker == delivery.worker
    return is_its_own and earlier.entry.told and why_unread(earlier, history) is None


def _is_open(
    earlier: Delivery, answered_by: float, received_again_at: float, history: WorkerHistory
) -> bool:
    """Return whether a release of an earlier receive may still take effect.

    If the message was received again before its lease expired, the release has taken effect.

    Args:
        answered_by: A later answer does not count.
        received_again_at: When its worker received the message again.
    """
    ends = knowledge_of(earlier, history, received_again_at).ends
    if received_again_at < ends:
        return False
    releases = [each for each in earlier.releases if each[0].started < received_again_at]
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
    """Return whether a keeper had no time for a release before the lease expired, at `ends`.

    The keeper logs that, but its worker may read the message again before it learns of it.
    """
    is_wanted = why_released(earlier, history, ends) is not None
    return is_wanted and earlier.message_id in history.unrepeated


def _was_given_up(earlier: Delivery, call: Call, history: WorkerHistory, ends: float) -> bool:
    """Return whether a keeper gave up waiting for the answer to a release, as its log says.

    A keeper plans no release after the expiry. So a release that is sent later was planned before
    and then waited for a CPU. The keeper's wait for the answer also starts with the plan, so a
    busy machine may have used it up.
    """
    planned = call.started - earlier.longest_patience
    was_slow = free(planned, call.started, history.slow) < HASTE
    return earlier.message_id in history.unrepeated and (call.started > ends or was_slow)
