"""Finds why a message was received again: a cause that could not be avoided, or none.

The lease of the receive before it has ended in one of two ways. Either a release ended it: then
the worker must have had a reason to release it. Or the timeout ran out: then the worker must have
been unable to extend it in time.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.soak import table
from tests.soak.knowledge import (
    came_late,
    knowledge_of,
    may_still_be_done,
    was_read_at_the_end,
    why_unread,
)
from tests.soak.messages import Delivery, Run
from tests.soak.records import CHANGE, Call, Entry
from tests.soak.releases import GRACE, POOL_PROCESS_KILLED, why_cut, why_released
from tests.soak.table import Cause
from tests.soak.workers import FLUSH_SECONDS, HASTE, Block, Worker, after, free, longest_overlap

#: How often a prefork worker in shutdown looks for results, in seconds
#: (celery/concurrency/asynpool.py, `ResultHandler.on_stop_not_started`).
RESULT_SECONDS = 1.0
_LATE_RELEASE = Cause(table.DELAYED, "a release was delayed until its lease had expired")


def cause_of(delivery: Delivery, workers: Mapping[str, Worker]) -> Cause | None:
    """Return why the message was received again after this receive, or None if nothing does."""
    if delivery.ended_by is not None:
        call, entry = delivery.ended_by
        if entry.handle != delivery.entry.handle:
            return _why_released_late(delivery, call, entry, workers[call.worker])
        return why_released(delivery, call.started)
    tried = [call for call, _ in delivery.releases if call.started < delivery.visible_at]
    if why := why_cut(delivery):
        return why
    if tried and (why := why_released(delivery, tried[0].started)):
        # After the first try of a release no extension may follow.
        return why.but("but its release failed")
    return _why_expired(delivery)


def _why_expired(delivery: Delivery) -> Cause | None:
    run, worker = delivery.run, delivery.worker
    if why := why_unread(delivery):
        return why
    if why := _why_set_aside(delivery) or _why_left_to_its_timeout(delivery):
        return why
    if run and run.is_left_to_dead_letters:
        return Cause(table.RELEASED_BY_TASK, "its retry could not be sent")
    on_the_way = Cause(table.UNREAD, "its receive was answered late")
    way = Block(on_the_way, delivery.receive.done, delivery.receive.ended)
    blocks = [*worker.blocks, worker.end, way, *_refused(delivery)]
    both = [*blocks, *worker.still]
    if _should_have_been_released(delivery, both):
        return None
    if why := _why_given_up(delivery, both) or _why_not_released(delivery, both):
        return why
    knowledge = knowledge_of(delivery)
    drops = worker.info.on_lost != "warn" or delivery.queue.is_fifo or came_late(delivery)
    is_let_expire = drops and (run is None or run.start > knowledge.first_expired_at)
    # After the expiry, tries are rare, and the worker may see the expiry too early. A late
    # extension saves no task that the worker let expire before it began.
    end = min(delivery.visible_at, knowledge.first_expired_at if is_let_expire else knowledge.ends)
    due = max(delivery.receive.done, end - delivery.queue.threshold)
    if free(due, end, blocks) > GRACE:
        return None
    if run is not None and run.is_closed:
        # Was there time enough to delete it?
        until = min(delivery.visible_at, worker.info.ended)
        # A worker in shutdown looks for its pool's results once a second.
        grace = GRACE + RESULT_SECONDS * bool(worker.stops(run.ended))
        if free(max(run.ended, delivery.receive.done), until, [*both, *worker.asleep]) > grace:
            return None
    block = longest_overlap(due, end, blocks)
    if (
        block is None
        or _next_keeper_could_keep(delivery, due, end, blocks)
        or was_read_at_the_end(delivery)
    ):
        return None
    if block == worker.end and run is not None and delivery.is_run:
        return _why_it_ended_too_soon(run, worker)
    return block.why


def _why_it_ended_too_soon(run: Run, worker: Worker) -> Cause | None:
    """Return why its worker left its task unfinished. A warm shutdown is no reason."""
    ended = worker.info.ended
    if worker.did(["kill"], run.start, ended) or worker.stops(ended, ["cold", "soft"]):
        return worker.end.why
    if worker.killed(run.pid, run.start, ended):
        return POOL_PROCESS_KILLED
    return None


def _should_have_been_released(delivery: Delivery, blocks: list[Block]) -> bool:
    """Return whether the keeper of a worker that was killed had the time to release it."""
    worker, knowledge = delivery.worker, knowledge_of(delivery)
    if not worker.was_killed or not knowledge.is_certain:
        return False
    is_wanted = why_released(delivery, max(delivery.receive.done, worker.info.ended)) is not None
    return is_wanted and free(worker.info.ended, knowledge.ends, blocks) > HASTE


def _next_keeper_could_keep(
    delivery: Delivery, due: float, end: float, blocks: list[Block]
) -> bool:
    """Return whether only a keeper's death explains the loss of a lease that should survive it."""
    timeouts = [entry.timeout for _, entry in delivery.changes if entry.timeout]
    if min([delivery.timeout, *timeouts]) < table.SAFE_TIMEOUT:
        return False
    downs = delivery.worker.downs
    brief = [down.block for down in downs if down.is_brief and not down.is_for_good]
    rest = [block for block in blocks if block not in brief]
    return free(due, end, rest) >= end - due - HASTE


def _why_not_released(delivery: Delivery, blocks: list[Block]) -> Cause | None:
    """Return why a message that should have been released was left to its timeout, if it was."""
    worker, knowledge = delivery.worker, knowledge_of(delivery)
    why = why_released(delivery, min(delivery.visible_at, worker.info.ended))
    if why is None:
        return None
    if not knowledge.is_certain:
        return why.but("but an extension was confirmed too late")
    if worker.end.start <= knowledge.ends <= worker.end.end:
        return None
    had_reason = why_released(delivery, knowledge.ends - GRACE) is not None
    if had_reason and free(knowledge.ends - GRACE, knowledge.ends, blocks) > HASTE:
        return None
    return why.but("but its worker counted the lease as expired")


def _why_given_up(delivery: Delivery, blocks: list[Block]) -> Cause | None:
    """Return whether its deletes failed for as long as a worker in shutdown tries them."""
    run, stops = delivery.run, delivery.worker.stops(delivery.visible_at)
    if run is None or not run.outcome or not stops or not delivery.own_deletes:
        return None
    last = max(call.ended for call in delivery.own_deletes)
    tried_for = last - max(run.ended, stops[0].at)
    # Pauses double: after half of the time, the next try may be due only after its end.
    if free(run.ended, last, blocks) < GRACE + RESULT_SECONDS and tried_for > FLUSH_SECONDS / 2:
        return Cause(table.REFUSED, "SQS accepted no delete of it while its worker shut down")
    return None


def _refused(delivery: Delivery) -> list[Block]:
    """Return when calls for it were under way that failed or succeeded too late."""
    haste, over = delivery.timeout * table.PAUSE_PART, knowledge_of(delivery).ends
    # The releases of messages behind it in its group go first.
    behind = [release for each in delivery.behind for release in each.releases]
    return [
        Block(
            Cause(table.REFUSED, "SQS refused or lost its calls"),
            call.started,
            # The client gives up after its timeout, and pauses before the next try. After the
            # lease has expired, each pause is twice as long as the one before.
            min(call.ended, call.started + delivery.longest_patience)
            + max(haste, 2 * (call.started - over)),
        )
        for call, entry in [*delivery.changes, *delivery.deletes, *behind]
        if call.worker == delivery.receive.worker
        and (not delivery.is_known(call, entry) or not _was_in_time(delivery, call, entry))
    ]


def _was_in_time(delivery: Delivery, call: Call, entry: Entry) -> bool:
    return call.operation == CHANGE and entry.done and call.done < delivery.visible_at


# -- An older release might still take effect: a worker neither runs nor releases the message. -----


def _why_set_aside(delivery: Delivery) -> Cause | None:
    """Return whether it was not run because its worker's older release was still unanswered.

    This explains only the first redelivery that the worker reads: a call that hangs must not block
    a message indefinitely.
    """
    calls = [*delivery.changes, *delivery.deletes]
    known = (each for each in delivery.own_before() if each.entry.told and not why_unread(each))
    earlier = next(known, None)
    has_acted = any(call.worker == delivery.receive.worker for call, _ in calls)
    if delivery.is_run or has_acted or earlier is None:
        return None
    if not _is_open(earlier, delivery.receive.ended, _received_again_at(delivery)):
        return None
    return Cause(table.DELAYED, "an older release of it was delayed")


def _why_left_to_its_timeout(delivery: Delivery) -> Cause | None:
    """Return why it should have been released, if its worker could not be certain of its lease.

    If SQS carries out the older release meanwhile, another worker may receive the message. A
    release by the stale handle would then end that worker's lease. SQS may have carried out an
    older release after the receive, even if it answered while the receive was under way.
    """
    why = why_released(delivery, min(delivery.visible_at, delivery.worker.info.ended))
    received_again_at = _received_again_at(delivery)
    for earlier in delivery.own_before():
        if why and _is_open(earlier, delivery.receive.started, received_again_at):
            return why.but("but an older release may still take effect")
        received_again_at = _received_again_at(earlier)
    return None


def _received_again_at(delivery: Delivery) -> float:
    """Return when its keeper read it: a stopped keeper does not know when it arrived."""
    return after(delivery.receive.ended, delivery.worker.halts)


def _is_open(earlier: Delivery, answered_by: float, received_again_at: float) -> bool:
    """Return whether a release of an earlier receive may still take effect.

    If the message was received again before its lease expired, the release has taken effect.

    Args:
        answered_by: A later answer does not count.
        received_again_at: When its worker received the message again.
    """
    ends = knowledge_of(earlier, received_again_at).ends
    if received_again_at < ends:
        return False
    releases = [each for each in earlier.releases if each[0].started < received_again_at]
    says_so = earlier.message.message_id in earlier.worker.unrepeated
    # A keeper that had no time for a release before the lease expired logs that, but its worker may
    # read the message again before it learns of it.
    was_never_sent = says_so and not releases and why_released(earlier, ends) is not None
    return (
        was_never_sent
        or why_cut(earlier) is not None
        or any(
            may_still_be_done(earlier, call, entry, answered_by=answered_by)
            or (says_so and _was_given_up(earlier, call, ends))
            for call, entry in releases
        )
    )


def _was_given_up(earlier: Delivery, call: Call, ends: float) -> bool:
    """Return whether a keeper gave up waiting for the answer to a release.

    A keeper plans no release after the expiry. So a release that is sent later was planned before
    and then waited for a CPU. The keeper's wait for the answer also starts with the plan, so a
    busy machine may have used it up.
    """
    planned = call.started - earlier.longest_patience
    return call.started > ends or free(planned, call.started, earlier.worker.slow) < HASTE


# -- Releases by the handle of an earlier receive that end the lease of a later one. ---------------


def _why_released_late(
    delivery: Delivery, call: Call, entry: Entry, worker: Worker
) -> Cause | None:
    """Return why a release by an older handle arrived after this receive."""
    sender = next(each for each in delivery.before() if each.entry.handle == entry.handle)
    delayed = Block(_LATE_RELEASE, call.started, call.done)
    if free(sender.visible_at, call.done, [*worker.blocks, delayed]) < HASTE:
        return _LATE_RELEASE
    if sender.ended_by is None or sender.ended_by[1].handle == sender.entry.handle:
        return None
    # An older release had ended the sender's own lease, and the sender could not know.
    is_sure = call.started < knowledge_of(sender).ends
    return _LATE_RELEASE if is_sure and why_released(sender, call.started) else None
