"""Why a message was received again: a named cause that could not be helped, or none.

Whatever brings a message back ended the lease of its last receive. That is either a
release, and then the worker must have had a reason to release it; or the timeout ran out, and
then the worker must have been unable to prevent it when it had to.
"""

from __future__ import annotations

import math

from tests.soak.belief import belief_of, why_not_released
from tests.soak.lives import Block, Life, after, foremost, free
from tests.soak.model import CHANGE, Call, Entry
from tests.soak.promises import PAUSE_PART, failure_delay
from tests.soak.releases import BY_DESIGN, GRACE, why_released, why_released_late
from tests.soak.settings import FLUSH_SECONDS
from tests.soak.tenure import HASTE, Run, Tenure

#: How seldom a prefork worker that ends looks for results (celery/concurrency/asynpool.py,
#: `ResultHandler.on_stop_not_started`).
RESULT_SECONDS = 1.0


def cause_of(tenure: Tenure, lives: dict[str, Life]) -> str | None:
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
    if tried and (why := why_released(tenure, life, tried[0].started)):
        # After the first try of a release no extension may follow.
        return f"{why}, and its release failed"
    return _why_lapsed(tenure, life)


def _why_lapsed(tenure: Tenure, life: Life) -> str | None:
    if why := _why_hidden_for_as_long(tenure, life):
        return why
    if why := _why_unread(tenure, life):
        return why
    if life.info.breaks and (tenure.run is None or tenure.run.count != tenure.count):
        # Left in the queue, as it may have been started for all that is known.
        return "the pool of its worker could not take it"
    if tenure.run and tenure.run.is_left_to_dead_letters(tenure.queue):
        return "its retry could not be sent"
    on_the_way = [*_on_the_way(tenure), *_waiting(tenure, life)]
    blocks = [*life.blocks, life.end, *on_the_way, *_refused(tenure, life)]
    if why := _why_given_up(tenure, life, blocks) or why_not_released(tenure, life, blocks):
        return why
    belief = belief_of(tenure, life)
    is_dropped = life.info.drops and (tenure.run is None or tenure.run.start > belief.lapsed)
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
        unread = [*blocks, *life.asleep]
        if free(max(run.ended, tenure.receive.done), until, unread) > grace:
            return None
    block = foremost(due, end, blocks)
    if block is None or _was_taken_along(tenure, life):
        return None
    if block == life.end and run is not None and run.count == tenure.count:
        return _why_it_ended_too_soon(run, life)
    return block.why


def _why_hidden_for_as_long(tenure: Tenure, life: Life) -> str | None:
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
        why = "its pool process was killed"
    else:
        return None
    return why if entry.done or why is None else f"{why}, and its release failed"


def _why_unread(tenure: Tenure, life: Life) -> str | None:
    """Return why the worker may never have seen the message, or too late."""
    call, run = tenure.receive, tenure.run
    was_read = run is not None and run.count == tenure.count
    calls = [*tenure.changes, *tenure.deletes]
    if was_read or any(each.worker == tenure.worker for each, _ in calls):
        return None
    blocks = [*life.blocks, *life.deaf, *([life.end] if life.was_killed else [])]
    read_at = after(call.ended, life.blocks)
    # It may have asked before it stood still, and sent that when it went on.
    stood_still = [block for block in life.blocks if 0 <= call.started - block.end < HASTE]
    asked_at = min([call.started, *(block.start for block in stood_still)])
    if read_at + HASTE > asked_at + tenure.timeout:
        return "it was read so late after the question that it may have been anybody's"
    if free(call.ended, tenure.visible_at, blocks) > GRACE:
        return None
    block = foremost(call.ended, tenure.visible_at, blocks)
    return block and f"it was not read in time: {block.why}"


def _was_taken_along(tenure: Tenure, life: Life) -> bool:
    """Return whether a worker that ended in order left unread what its last poll had brought.

    It waits for that poll. What the proxy does to it may take longer than that.
    """
    if life.info.ended > tenure.visible_at:
        return False
    calls = [*tenure.changes, *tenure.deletes]
    was_read = tenure.run is not None or any(call.worker == tenure.worker for call, _ in calls)
    reads = life.info.pool != "gevent" and bool(life.stops(life.info.ended)) and not life.was_killed
    return reads and not was_read and not tenure.receive.fault


def _why_it_ended_too_soon(run: Run, life: Life) -> str | None:
    """A worker that was killed may leave a task undone; a warm shutdown may not."""
    if life.did(["kill"], run.start, life.info.ended):
        return life.end.why
    if life.stops(life.info.ended, ["cold", "soft"]):
        return life.end.why
    if life.killed(run.pid, run.start, life.info.ended):
        return "its pool process was killed"
    if life.did(["broken"], run.start, life.info.ended):
        return "its worker's pool was broken"
    return None


def _why_given_up(tenure: Tenure, life: Life, blocks: list[Block]) -> str | None:
    """Return whether its deletes failed for as long as a worker tries them at its end."""
    run, stops = tenure.run, life.stops(tenure.visible_at)
    mine = [call for call, _ in tenure.deletes if call.worker == tenure.worker]
    if run is None or not run.outcome or not stops or not mine:
        return None
    last = max(call.ended for call in mine)
    tried_for = last - max(run.ended, stops[0].at)
    # Pauses double: after half of the time the next try may be due when it is over.
    if free(run.ended, last, blocks) < GRACE + RESULT_SECONDS and tried_for > FLUSH_SECONDS / 2:
        return "SQS took no delete of it for as long as a worker tries at its end"
    return None


def _on_the_way(tenure: Tenure) -> list[Block]:
    call = tenure.receive
    if not tenure.entry.told:
        return [Block(why="the answer to its receive was lost", start=call.done, end=math.inf)]
    return [Block(why="its receive was answered late", start=call.done, end=call.ended)]


def _waiting(tenure: Tenure, life: Life) -> list[Block]:
    """Return when the answer to its receive waited for the tasks that its worker was in.

    The messages of one answer are run in a row. The row ends at the first gap, and at a task whose
    message came in the same answer as this one. The answer had been read by the first call for
    this message, and by its start.
    """
    answered, run = tenure.receive.ended, tenure.run
    signs = [
        call.started
        for call, _ in [*tenure.changes, *tenure.deletes]
        if call.worker == tenure.worker
    ]
    if run is not None and run.count == tenure.count:
        signs.append(run.start)
    own = {entry.message_id for entry in tenure.receive.entries}
    row: list[Block] = []
    rest = [task for task in life.tasks if task.end > answered]
    for task in sorted(rest, key=lambda task: task.start):
        follows = row and task.start < row[-1].end + HASTE and task.message_id not in own
        if not (task.start <= answered or follows):
            break
        row.append(task)
    if not signs or not row:
        return []
    why = f"it was read late: {row[0].why}"
    return [Block(why=why, start=answered, end=min(row[-1].end, *signs))]


def _refused(tenure: Tenure, life: Life) -> list[Block]:
    """Return when calls for it were under way that did not succeed, or too late."""
    haste, over = tenure.timeout * PAUSE_PART, belief_of(tenure, life).ends
    return [
        Block(
            why="SQS refused or lost its calls",
            start=call.started,
            # The client gives up after its timeout, and pauses before the next try: once the
            # lease is over, for twice as long each time.
            end=min(call.ended, call.started + tenure.longest_patience)
            + max(haste, 2 * (call.started - over)),
        )
        for call, entry in [*tenure.changes, *tenure.deletes]
        if call.worker == tenure.worker
        and (not tenure.is_known(call, entry) or not _was_in_time(tenure, call, entry))
    ]


def _was_in_time(tenure: Tenure, call: Call, entry: Entry) -> bool:
    return call.operation == CHANGE and entry.done and call.done < tenure.visible_at
