"""Finds why a message was received again: a cause that could not be avoided, or none.

The lease of the receive before it has ended in one of two ways. Either a release ended it: then
the worker must have had a reason to release it. Or the timeout ran out: then the worker must have
been unable to extend it in time.
"""

from __future__ import annotations

from tests.soak.aside import why_left_to_its_timeout, why_set_aside
from tests.soak.blocks import Block, free, longest_overlap
from tests.soak.cut import why_cut
from tests.soak.delays import PAUSE_PART
from tests.soak.delivery import Delivery, Run
from tests.soak.handover import next_keeper_could_keep, should_have_been_released
from tests.soak.model import CHANGE, Call, Entry
from tests.soak.older_handles import why_cut_short, why_released_late
from tests.soak.reading import came_late, on_the_way, was_read_at_the_end, why_unread
from tests.soak.releases import GRACE, POOL_PROCESS_KILLED, why_released
from tests.soak.settings import FLUSH_SECONDS
from tests.soak.table import BROKEN, REFUSED, RELEASED_BY_TASK, Cause
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import knowledge_of, why_not_released

#: How often a prefork worker in shutdown looks for results, in seconds
#: (celery/concurrency/asynpool.py, `ResultHandler.on_stop_not_started`).
RESULT_SECONDS = 1.0


def cause_of(delivery: Delivery, histories: dict[str, WorkerHistory]) -> Cause | None:
    """Return why the message was received again after this receive, or None if nothing does."""
    history = histories[delivery.worker]
    if delivery.ended_by is not None:
        call, entry = delivery.ended_by
        if entry.handle != delivery.entry.handle:
            return why_released_late(delivery, histories)
        return why_released(delivery, history, call.started)
    tried = [call for call, _ in delivery.releases if call.started < delivery.visible_at]
    if why := why_cut(delivery, history):
        return why
    if tried and (why := why_released(delivery, history, tried[0].started)):
        # After the first try of a release no extension may follow.
        return why.but("but its release failed")
    return _why_expired(delivery, history)


def _why_expired(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    if why := why_cut_short(delivery) or why_unread(delivery, history):
        return why
    if why := why_set_aside(delivery, history) or why_left_to_its_timeout(delivery, history):
        return why
    was_run = delivery.run is not None and delivery.run.count == delivery.count
    if history.info.breaks and delivery.has_arrived and not was_run:
        # The worker leaves it in the queue, because the pool may have started it.
        return Cause(BROKEN, "its worker's pool could not take it")
    if delivery.run and delivery.run.is_left_to_dead_letters(delivery.queue):
        return Cause(RELEASED_BY_TASK, "its retry could not be sent")
    blocks = [*history.blocks, history.end, on_the_way(delivery), *_refused(delivery, history)]
    both = [*blocks, *history.still]
    if should_have_been_released(delivery, history, both):
        return None
    if why := _why_given_up(delivery, history, both) or why_not_released(delivery, history, both):
        return why
    knowledge = knowledge_of(delivery, history)
    drops = history.info.drops or delivery.queue.is_fifo or came_late(delivery, history)
    is_let_expire = drops and (
        delivery.run is None or delivery.run.start > knowledge.first_expired_at
    )
    # After the expiry, tries are rare, and the worker may see the expiry too early. A late
    # extension saves no task that the worker let expire before it began.
    end = min(delivery.visible_at, knowledge.first_expired_at if is_let_expire else knowledge.ends)
    due = max(delivery.receive.done, end - delivery.queue.threshold)
    if free(due, end, blocks) > GRACE:
        return None
    run = delivery.run
    if run is not None and run.is_closed:
        # Was there time enough to delete it?
        until = min(delivery.visible_at, history.info.ended)
        # A worker in shutdown looks for its pool's results once a second.
        grace = GRACE + RESULT_SECONDS * bool(history.stops(run.ended))
        unread = [*both, *history.asleep]
        if free(max(run.ended, delivery.receive.done), until, unread) > grace:
            return None
    if next_keeper_could_keep(delivery, history, due, end, blocks):
        return None
    block = longest_overlap(due, end, blocks)
    if block is None or was_read_at_the_end(delivery, history):
        return None
    if block == history.end and run is not None and run.count == delivery.count:
        return _why_it_ended_too_soon(run, history)
    return block.why


def _why_it_ended_too_soon(run: Run, history: WorkerHistory) -> Cause | None:
    """Return why its worker left its task unfinished. A warm shutdown is no reason."""
    if history.did(["kill"], run.start, history.info.ended):
        return history.end.why
    if history.stops(history.info.ended, ["cold", "soft"]):
        return history.end.why
    if history.killed(run.pid, run.start, history.info.ended):
        return POOL_PROCESS_KILLED
    if history.did(["broken"], run.start, history.info.ended):
        return Cause(BROKEN, "its worker's pool was broken")
    return None


def _why_given_up(delivery: Delivery, history: WorkerHistory, blocks: list[Block]) -> Cause | None:
    """Return whether its deletes failed for as long as a worker in shutdown tries them."""
    run, stops = delivery.run, history.stops(delivery.visible_at)
    mine = [call for call, _ in delivery.deletes if call.worker == delivery.worker]
    if run is None or not run.outcome or not stops or not mine:
        return None
    last = max(call.ended for call in mine)
    tried_for = last - max(run.ended, stops[0].at)
    # Pauses double: after half of the time, the next try may be due only after its end.
    if free(run.ended, last, blocks) < GRACE + RESULT_SECONDS and tried_for > FLUSH_SECONDS / 2:
        return Cause(REFUSED, "SQS accepted no delete of it while its worker shut down")
    return None


def _refused(delivery: Delivery, history: WorkerHistory) -> list[Block]:
    """Return when calls for it were under way that failed or succeeded too late."""
    haste, over = delivery.timeout * PAUSE_PART, knowledge_of(delivery, history).ends
    return [
        Block(
            why=Cause(REFUSED, "SQS refused or lost its calls"),
            start=call.started,
            # The client gives up after its timeout, and pauses before the next try. After the
            # lease has expired, each pause is twice as long as the one before.
            end=min(call.ended, call.started + delivery.longest_patience)
            + max(haste, 2 * (call.started - over)),
        )
        for call, entry in _calls_it_waits_for(delivery)
        if call.worker == delivery.worker
        and (not delivery.is_known(call, entry) or not _was_in_time(delivery, call, entry))
    ]


def _calls_it_waits_for(delivery: Delivery) -> list[tuple[Call, Entry]]:
    """Return its own calls, and the releases of messages behind it in its group: these go first."""
    behind = [release for each in delivery.behind for release in each.releases]
    return [*delivery.changes, *delivery.deletes, *behind]


def _was_in_time(delivery: Delivery, call: Call, entry: Entry) -> bool:
    return call.operation == CHANGE and entry.done and call.done < delivery.visible_at
