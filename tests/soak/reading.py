"""Whether and when a worker's keeper could read a message that SQS had delivered to it.

The keeper receives on threads of its own process. So it reads a message whatever its worker does
meanwhile: a task of a solo pool, a standstill of the main process, a reconnect, a shutdown.
"""

from __future__ import annotations

from tests.soak.blocks import Block, free, longest_overlap
from tests.soak.delivery import HASTE, Delivery
from tests.soak.downs import Down
from tests.soak.table import LEFT_IN_POLL, UNREAD, Cause
from tests.soak.worker_history import WorkerHistory

#: A keeper may not have read an answer that came so shortly before its death, in seconds.
READING_SECONDS = 0.1


def why_unread(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return why the keeper may have read the message too late or never."""
    call = delivery.receive
    if was_read(delivery):
        return None
    if any(_was_left(delivery, down, history) for down in history.downs):
        return Cause(LEFT_IN_POLL, "its keeper died with a poll open")
    if not delivery.entry.told:
        return Cause(UNREAD, "the answer to its receive was lost")
    is_late = call.ended + HASTE > history.info.keeper_ended
    if is_late and call.fault and _lives_on(history):
        return Cause(UNREAD, "its receive was answered after its keeper had ended")
    if _read_at(delivery, history) + HASTE > _asked_at(delivery, history) + delivery.timeout:
        return Cause(
            UNREAD, "it was read so long after the receive that others may have received it"
        )
    if free(call.ended, delivery.visible_at, history.halts) > HASTE:
        return None
    block = longest_overlap(call.ended, delivery.visible_at, history.halts)
    return Cause(UNREAD, f"it was not read in time: {block.why}") if block else None


def was_read(delivery: Delivery) -> bool:
    """Return whether its worker made a call for it, got it, or ran it."""
    calls = [*delivery.changes, *delivery.deletes]
    was_run = delivery.run is not None and delivery.run.count == delivery.count
    has_called = any(call.worker == delivery.worker for call, _ in calls)
    return has_called or delivery.has_arrived or was_run


def was_read_at_the_end(delivery: Delivery, history: WorkerHistory) -> bool:
    """Return whether a keeper must have read a message that it makes no call for at the end.

    It waits for its last polls, but perhaps not as long as a fault of the proxy lasts.
    """
    was_over = history.info.ended <= delivery.visible_at
    is_fair = _lives_on(history) and not delivery.receive.fault
    return was_over and is_fair and not was_read(delivery)


def came_late(delivery: Delivery, history: WorkerHistory) -> bool:
    """Return whether its lease had so little time left that it waits for an extension.

    It is handed over only if the extension is confirmed, whatever `sqs_heartbeat_on_lost` is
    (docs/internals/leases.md, "What is known of a lease").
    """
    ends = _asked_at(delivery, history) + delivery.timeout
    return _read_at(delivery, history) + delivery.queue.threshold > ends


def on_the_way(delivery: Delivery) -> Block:
    """Return when a message was on its way."""
    call = delivery.receive
    why = Cause(UNREAD, "its receive was answered late")
    return Block(why=why, start=call.done, end=call.ended)


def _lives_on(history: WorkerHistory) -> bool:
    """Return whether a keeper was alive at the end of its worker."""
    return not any(down.is_for_good for down in history.downs)


def _was_left(delivery: Delivery, down: Down, history: WorkerHistory) -> bool:
    """Return whether a keeper died, or was stopped until it died, before it read the answer."""
    call, at = delivery.receive, down.harm.at
    was_sent = call.started <= at + HASTE
    return down.dies and was_sent and free(call.ended, at, history.halts) < READING_SECONDS


def _asked_at(delivery: Delivery, history: WorkerHistory) -> float:
    """Return when its keeper may have begun the receive: before it was stopped.

    The keeper sends the receive only when it continues.
    """
    at = delivery.receive.started
    for block in sorted(history.halts, key=lambda block: block.end, reverse=True):
        if 0 <= at - block.end < HASTE:
            at = block.start
    return at


def _read_at(delivery: Delivery, history: WorkerHistory) -> float:
    """Return when its keeper may have read it: reading takes a moment, in which it may stop."""
    at = delivery.receive.ended
    for block in sorted(history.halts, key=lambda block: block.start):
        if block.start <= at + HASTE:
            at = max(at, block.end)
    return at
