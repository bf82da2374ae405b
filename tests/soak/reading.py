"""Whether and when a worker could read a message that SQS had delivered to it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.soak.blocks import Block, after, free, longest_overlap
from tests.soak.delivery import HASTE, Delivery
from tests.soak.releases import GRACE
from tests.soak.table import DISCONNECTED, UNREAD, Cause
from tests.soak.worker_history import LOOK_SECONDS, WorkerHistory


def why_unread(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return why the worker may have read the message too late or never."""
    call, run = delivery.receive, delivery.run
    was_read = run is not None and run.count == delivery.count
    calls = [*delivery.changes, *delivery.deletes]
    if was_read or any(each.worker == delivery.worker for each, _ in calls):
        return None
    ends = [history.gone] if history.was_killed else []
    blocks = [
        *history.still,
        *history.deaf,
        *_waiting(delivery, history),
        *_after_disconnects(delivery, history),
        *ends,
    ]
    row = _tasks_before_reading(delivery, history)
    read_at = row[-1].end if row else after(call.ended, history.still)
    if read_at + HASTE > asked_at(delivery, history) + delivery.timeout:
        return Cause(
            UNREAD, "it was read so long after the receive that others may have received it"
        )
    if free(call.ended, delivery.visible_at, blocks) > GRACE:
        return None
    block = longest_overlap(call.ended, delivery.visible_at, blocks)
    return Cause(UNREAD, f"it was not read in time: {block.why}") if block else None


def asked_at(delivery: Delivery, history: WorkerHistory) -> float:
    """Return when its worker may have begun the receive: before it was stopped or in a task.

    The worker sends the receive only when it continues.
    """
    at = delivery.receive.started
    for block in sorted(
        [*history.still, *history.tasks], key=lambda block: block.end, reverse=True
    ):
        if 0 <= at - block.end < HASTE:
            at = block.start
    return at


def _after_disconnects(delivery: Delivery, history: WorkerHistory) -> Iterator[Block]:
    """Yield the time after a lost connection, if the receive had not been read by then."""
    call = delivery.receive
    row = _tasks_before_reading(delivery, history)
    read_at = row[-1].end if row else after(call.ended, history.still)
    for at in history.disconnects:
        lost = at - LOOK_SECONDS
        if call.started < at + HASTE and read_at > lost:
            why = Cause(DISCONNECTED, "its worker lost the connection")
            yield Block(why=why, start=lost, end=math.inf)


def was_taken_along(delivery: Delivery, history: WorkerHistory) -> bool:
    """Return whether a worker left the messages of its last poll unread in an orderly shutdown.

    A worker waits for its last poll, but perhaps not as long as a fault of the proxy lasts.
    """
    if history.info.ended > delivery.visible_at:
        return False
    calls = [*delivery.changes, *delivery.deletes]
    was_read = delivery.run is not None or any(call.worker == delivery.worker for call, _ in calls)
    reads = (
        history.info.pool != "gevent"
        and bool(history.stops(history.info.ended))
        and not history.was_killed
    )
    return reads and not was_read and not delivery.receive.fault


def before_it_was_read(delivery: Delivery, history: WorkerHistory) -> list[Block]:
    """Return when a message was on its way, and when it then waited to be read."""
    return [_on_the_way(delivery), *before_its_answer_was_read(delivery, history)]


def _on_the_way(delivery: Delivery) -> Block:
    call = delivery.receive
    if not delivery.entry.told:
        why = Cause(UNREAD, "the answer to its receive was lost")
        return Block(why=why, start=call.done, end=math.inf)
    why = Cause(UNREAD, "its receive was answered late")
    return Block(why=why, start=call.done, end=call.ended)


def before_its_answer_was_read(delivery: Delivery, history: WorkerHistory) -> list[Block]:
    """Return when the answer to its receive waited because its worker was busy or stopped.

    By the first call for this message, and by its start, the answer had been read.
    """
    answered, run = delivery.receive.ended, delivery.run
    signs = [
        call.started
        for call, _ in [*delivery.changes, *delivery.deletes]
        if call.worker == delivery.worker
    ]
    if run is not None and run.count == delivery.count:
        signs.append(run.start)
    if not signs:
        return []
    first = min(signs)
    waits = []
    if row := _tasks_before_reading(delivery, history):
        why = Cause(UNREAD, f"it was read late: {row[0].why}")
        waits.append(Block(why=why, start=answered, end=min(row[-1].end, first)))
    # Reading takes a moment, and the worker may be stopped during that moment.
    stopped = [
        Block(why=block.why, start=answered, end=min(block.end, first))
        for block in history.still
        if block.start <= answered + HASTE and block.end > answered
    ]
    waited = [
        Block(why=block.why, start=block.start, end=min(block.end, first))
        for block in _waiting(delivery, history)
        if block.start < first and block.end > answered
    ]
    return [*waits, *stopped, *waited]


def _waiting(delivery: Delivery, history: WorkerHistory) -> list[Block]:
    """Return when its worker waited for a call for a message from another answer."""
    own = {entry.message_id for entry in delivery.receive.entries}
    return [block for block in history.waiting if block.message_id not in own]


def _tasks_before_reading(delivery: Delivery, history: WorkerHistory) -> list[Block]:
    """Return the tasks that its worker ran before it could read the answer to its receive.

    The worker runs the messages of one answer in a row. The row ends at the first gap, and at a
    task whose message came in the same answer as this one. After a standstill, the worker may
    first run another task.
    """
    answered = delivery.receive.ended
    own = {entry.message_id for entry in delivery.receive.entries}
    row: list[Block] = []
    rest = [task for task in history.tasks if task.end > answered]
    resumes_at = after(answered, history.still)
    first = resumes_at + HASTE if resumes_at > answered else answered
    for task in sorted(rest, key=lambda task: task.start):
        follows = row and task.start < row[-1].end + HASTE and task.message_id not in own
        if not (task.start <= first or follows):
            break
        row.append(task)
    return row
