"""Whether, and when, a worker could read the message that it was given."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.soak.blocks import Block, after, foremost, free
from tests.soak.delivery import HASTE, Delivery
from tests.soak.releases import GRACE
from tests.soak.table import DISCONNECTED, UNREAD, Cause
from tests.soak.worker_history import LOOK_SECONDS, WorkerHistory


def why_unread(tenure: Delivery, life: WorkerHistory) -> Cause | None:
    """Return why the worker may never have seen the message, or too late."""
    call, run = tenure.receive, tenure.run
    was_read = run is not None and run.count == tenure.count
    calls = [*tenure.changes, *tenure.deletes]
    if was_read or any(each.worker == tenure.worker for each, _ in calls):
        return None
    ends = [life.gone] if life.was_killed else []
    blocks = [*life.still, *life.deaf, *_confirming(tenure, life), *_cut(tenure, life), *ends]
    row = _row(tenure, life)
    read_at = row[-1].end if row else after(call.ended, life.still)
    if read_at + HASTE > asked_at(tenure, life) + tenure.timeout:
        return Cause(
            UNREAD, "it was read so late after the question that it may have been anybody's"
        )
    if free(call.ended, tenure.visible_at, blocks) > GRACE:
        return None
    block = foremost(call.ended, tenure.visible_at, blocks)
    return Cause(UNREAD, f"it was not read in time: {block.why}") if block else None


def asked_at(tenure: Delivery, life: WorkerHistory) -> float:
    """Return when its worker may have asked for it: before it stood still, or was in a task.

    It sends that when it goes on.
    """
    at = tenure.receive.started
    for block in sorted([*life.still, *life.tasks], key=lambda block: block.end, reverse=True):
        if 0 <= at - block.end < HASTE:
            at = block.start
    return at


def _cut(tenure: Delivery, life: WorkerHistory) -> Iterator[Block]:
    """Yield the time after the connection was lost, where a receive was not yet read then."""
    call = tenure.receive
    row = _row(tenure, life)
    read_at = row[-1].end if row else after(call.ended, life.still)
    for at in life.disconnects:
        lost = at - LOOK_SECONDS
        if call.started < at + HASTE and read_at > lost:
            why = Cause(DISCONNECTED, "its worker lost the connection")
            yield Block(why=why, start=lost, end=math.inf)


def was_taken_along(tenure: Delivery, life: WorkerHistory) -> bool:
    """Return whether a worker that ended in order left unread what its last poll had brought.

    It waits for that poll. What the proxy does to it may take longer than that.
    """
    if life.info.ended > tenure.visible_at:
        return False
    calls = [*tenure.changes, *tenure.deletes]
    was_read = tenure.run is not None or any(call.worker == tenure.worker for call, _ in calls)
    reads = life.info.pool != "gevent" and bool(life.stops(life.info.ended)) and not life.was_killed
    return reads and not was_read and not tenure.receive.fault


def before_it_was_read(tenure: Delivery, life: WorkerHistory) -> list[Block]:
    """Return when a message was on its way, and then waited for its worker to read it."""
    return [_on_the_way(tenure), *before_its_answer_was_read(tenure, life)]


def _on_the_way(tenure: Delivery) -> Block:
    call = tenure.receive
    if not tenure.entry.told:
        why = Cause(UNREAD, "the answer to its receive was lost")
        return Block(why=why, start=call.done, end=math.inf)
    why = Cause(UNREAD, "its receive was answered late")
    return Block(why=why, start=call.done, end=call.ended)


def before_its_answer_was_read(tenure: Delivery, life: WorkerHistory) -> list[Block]:
    """Return when the answer to its receive waited for its worker: for its tasks, or to go on.

    The answer had been read by the first call for this message, and by its start.
    """
    answered, run = tenure.receive.ended, tenure.run
    signs = [
        call.started
        for call, _ in [*tenure.changes, *tenure.deletes]
        if call.worker == tenure.worker
    ]
    if run is not None and run.count == tenure.count:
        signs.append(run.start)
    if not signs:
        return []
    first = min(signs)
    waits = []
    if row := _row(tenure, life):
        why = Cause(UNREAD, f"it was read late: {row[0].why}")
        waits.append(Block(why=why, start=answered, end=min(row[-1].end, first)))
    # Reading takes a moment, and the worker may stand still in that.
    stood_still = [
        Block(why=block.why, start=answered, end=min(block.end, first))
        for block in life.still
        if block.start <= answered + HASTE and block.end > answered
    ]
    waited = [
        Block(why=block.why, start=block.start, end=min(block.end, first))
        for block in _confirming(tenure, life)
        if block.start < first and block.end > answered
    ]
    return [*waits, *stood_still, *waited]


def _confirming(tenure: Delivery, life: WorkerHistory) -> list[Block]:
    """Return when its worker waited for the extension of a message of another answer."""
    own = {entry.message_id for entry in tenure.receive.entries}
    return [block for block in life.confirming if block.message_id not in own]


def _row(tenure: Delivery, life: WorkerHistory) -> list[Block]:
    """Return the tasks that its worker was in before it could read the answer to its receive.

    The messages of one answer are run in a row. The row ends at the first gap, and at a task whose
    message came in the same answer as this one. A worker that stood still may go on with a task.
    """
    answered = tenure.receive.ended
    own = {entry.message_id for entry in tenure.receive.entries}
    row: list[Block] = []
    rest = [task for task in life.tasks if task.end > answered]
    goes_on = after(answered, life.still)
    first = goes_on + HASTE if goes_on > answered else answered
    for task in sorted(rest, key=lambda task: task.start):
        follows = row and task.start < row[-1].end + HASTE and task.message_id not in own
        if not (task.start <= first or follows):
            break
        row.append(task)
    return row
