"""Why a message was received again: a named cause that could not be helped, or none.

Whatever brings a message back ended the lease of its last receive. That is either a
release, and then the worker must have had a reason to release it; or the timeout ran out, and
then the worker must have been unable to prevent it when it had to.
"""

from __future__ import annotations

from tests.soak.aside import why_left_to_its_timeout, why_set_aside
from tests.soak.blocks import Block, foremost, free
from tests.soak.cut import why_cut
from tests.soak.delays import PAUSE_PART, failure_delay
from tests.soak.delivery import Delivery, Run
from tests.soak.disturbing import why_cut_short
from tests.soak.handover import had_to_be_released, is_kept_by_the_next_keeper
from tests.soak.latecomers import came_late
from tests.soak.model import CHANGE, Call, Entry
from tests.soak.overtaken import why_released_late
from tests.soak.reading import before_it_was_read, was_taken_along, why_unread
from tests.soak.releases import (
    BY_DESIGN,
    GRACE,
    POOL_PROCESS_KILLED,
    why_released,
)
from tests.soak.settings import FLUSH_SECONDS
from tests.soak.table import BROKEN, GIVEN_BACK, REFUSED, Cause
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import belief_of, why_not_released

#: How seldom a prefork worker that ends looks for results (celery/concurrency/asynpool.py,
#: `ResultHandler.on_stop_not_started`).
RESULT_SECONDS = 1.0


def cause_of(tenure: Delivery, lives: dict[str, WorkerHistory]) -> Cause | None:
    """Return why the message came back after this receive, or None where nothing explains it."""
    life = lives[tenure.worker]
    if tenure.ended_by is not None:
        call, entry = tenure.ended_by
        if entry.handle != tenure.entry.handle:
            return why_released_late(tenure, lives)
        return why_released(tenure, life, call.started)
    tried = [
        call
        for call, entry in tenure.changes
        if call.worker == tenure.worker
        and entry.timeout < tenure.queue.shortest
        and call.started < tenure.visible_at
    ]
    if why := why_cut(tenure, life):
        return why
    if tried and (why := why_released(tenure, life, tried[0].started)):
        # After the first try of a release no extension may follow.
        return why.but("and its release failed")
    return _why_lapsed(tenure, life)


def _why_lapsed(tenure: Delivery, life: WorkerHistory) -> Cause | None:
    if why := _why_hidden_for_as_long(tenure, life):
        return why
    if why := why_cut_short(tenure) or why_unread(tenure, life):
        return why
    if why := why_set_aside(tenure, life) or why_left_to_its_timeout(tenure, life):
        return why
    if life.info.breaks and (tenure.run is None or tenure.run.count != tenure.count):
        # Left in the queue, as it may have been started for all that is known.
        return Cause(BROKEN, "the pool of its worker could not take it")
    if tenure.run and tenure.run.is_left_to_dead_letters(tenure.queue):
        return Cause(GIVEN_BACK, "its retry could not be sent")
    blocks = [*life.blocks, life.end, *before_it_was_read(tenure, life), *_refused(tenure, life)]
    both = [*blocks, *life.still]
    if had_to_be_released(tenure, life, both):
        return None
    if why := _why_given_up(tenure, life, both) or why_not_released(tenure, life, both):
        return why
    belief = belief_of(tenure, life)
    drops = life.info.drops or tenure.queue.is_fifo or came_late(tenure, life)
    is_dropped = drops and (tenure.run is None or tenure.run.start > belief.lapsed)
    # Tries come seldom once it is over, which the worker may take it for before it is. An
    # extension that comes too late saves no task that was dropped before it began.
    end = min(tenure.visible_at, belief.lapsed if is_dropped else belief.ends)
    due = max(tenure.receive.done, end - tenure.queue.threshold)
    if free(due, end, blocks) > GRACE:
        return None
    run = tenure.run
    if run is not None and run.is_closed:
        # Time enough to delete it, and it was not?
        until = min(tenure.visible_at, life.info.ended)
        # A worker that ends looks once a second for what its pool has done.
        grace = GRACE + RESULT_SECONDS * bool(life.stops(run.ended))
        unread = [*both, *life.asleep]
        if free(max(run.ended, tenure.receive.done), until, unread) > grace:
            return None
    if is_kept_by_the_next_keeper(tenure, life, due, end, blocks):
        return None
    block = foremost(due, end, blocks)
    if block is None or was_taken_along(tenure, life):
        return None
    if block == life.end and run is not None and run.count == tenure.count:
        return _why_it_ended_too_soon(run, life)
    return block.why


def _why_hidden_for_as_long(tenure: Delivery, life: WorkerHistory) -> Cause | None:
    """Return why its last call was to release it after a delay as long as the timeout, if one was.

    As after several failures, where there are no dead letters. After the first try of a release
    no extension may follow: one that failed is as good as done.
    """
    run, timeout = tenure.run, tenure.timeout
    calls = [(call, entry) for call, entry in tenure.changes if call.worker == tenure.worker]
    longest = failure_delay(tenure.count, timeout) == timeout
    if run is None or not calls or not longest or tenure.queue.max_receive_count:
        return None
    call, entry = calls[-1]
    if run.is_over and call.started >= run.ended:
        why = BY_DESIGN.get(run.outcome)
    elif (kill := life.killed(run.pid, run.start, call.started)) and kill.at < run.ended + GRACE:
        why = POOL_PROCESS_KILLED
    else:
        return None
    return why if entry.done or why is None else why.but("and its release failed")


def _why_it_ended_too_soon(run: Run, life: WorkerHistory) -> Cause | None:
    """A worker that was killed may leave a task undone; a warm shutdown may not."""
    if life.did(["kill"], run.start, life.info.ended):
        return life.end.why
    if life.stops(life.info.ended, ["cold", "soft"]):
        return life.end.why
    if life.killed(run.pid, run.start, life.info.ended):
        return POOL_PROCESS_KILLED
    if life.did(["broken"], run.start, life.info.ended):
        return Cause(BROKEN, "its worker's pool was broken")
    return None


def _why_given_up(tenure: Delivery, life: WorkerHistory, blocks: list[Block]) -> Cause | None:
    """Return whether its deletes failed for as long as a worker tries them at its end."""
    run, stops = tenure.run, life.stops(tenure.visible_at)
    mine = [call for call, _ in tenure.deletes if call.worker == tenure.worker]
    if run is None or not run.outcome or not stops or not mine:
        return None
    last = max(call.ended for call in mine)
    tried_for = last - max(run.ended, stops[0].at)
    # Pauses double: after half of the time the next try may be due when it is over.
    if free(run.ended, last, blocks) < GRACE + RESULT_SECONDS and tried_for > FLUSH_SECONDS / 2:
        return Cause(REFUSED, "SQS took no delete of it for as long as a worker tries at its end")
    return None


def _refused(tenure: Delivery, life: WorkerHistory) -> list[Block]:
    """Return when calls for it were under way that did not succeed, or too late."""
    haste, over = tenure.timeout * PAUSE_PART, belief_of(tenure, life).ends
    return [
        Block(
            why=Cause(REFUSED, "SQS refused or lost its calls"),
            start=call.started,
            # The client gives up after its timeout, and pauses before the next try: once the
            # lease is over, for twice as long each time.
            end=min(call.ended, call.started + tenure.longest_patience)
            + max(haste, 2 * (call.started - over)),
        )
        for call, entry in _calls_it_waits_for(tenure)
        if call.worker == tenure.worker
        and (not tenure.is_known(call, entry) or not _was_in_time(tenure, call, entry))
    ]


def _calls_it_waits_for(tenure: Delivery) -> list[tuple[Call, Entry]]:
    """Return its own calls, and the releases of what is behind it in its group: they go first."""
    behind = [
        (call, entry)
        for each in tenure.behind
        for call, entry in each.changes
        if entry.timeout < each.queue.shortest
    ]
    return [*tenure.changes, *tenure.deletes, *behind]


def _was_in_time(tenure: Delivery, call: Call, entry: Entry) -> bool:
    return call.operation == CHANGE and entry.done and call.done < tenure.visible_at
