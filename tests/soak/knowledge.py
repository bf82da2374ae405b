"""What a worker could read of a message, and know of its lease: less than SQS granted.

The keeper receives on threads of its own process. So it reads a message whatever its worker does
meanwhile: a task of a solo pool, a standstill of the main process, a reconnect, a shutdown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.soak.messages import Delivery
from tests.soak.records import Call, Entry
from tests.soak.table import LEFT_IN_POLL, UNREAD, Cause
from tests.soak.workers import HASTE, Down, Worker, after, free, longest_overlap

#: A keeper may not have read an answer that came so shortly before its death, in seconds.
READING_SECONDS = 0.1
#: After these faults, a worker knows that its call was not carried out.
_NOT_DONE = {"throttled", "503", "refused", "hidden", "entries refused"}
#: After this fault, it knows that the call was carried out before the answer or not at all.
_FAILED_WITHIN = "500"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """When a lease expired as far as its worker knew, and whether the lease was certain.

    An extension does not count if its answer was lost. If its answer was late, no one can tell who
    has the message. A worker that should release the message then leaves it to its timeout, because
    a release by a stale handle would end the lease of the new owner.

    Attributes:
        first_expired_at: When it expired for the first time. A late extension may have saved it.
    """

    ends: float
    is_certain: bool
    first_expired_at: float


def knowledge_of(delivery: Delivery, by: float = math.inf) -> Knowledge:
    """Return what a worker knew about the lease of a receive.

    Args:
        by: A later answer does not count.
    """
    run = delivery.run
    ends = delivery.receive.started + delivery.timeout
    is_certain, first_expired_at = True, math.inf
    told = [
        (call, entry.timeout)
        for call, entry in delivery.extensions
        if delivery.is_known(call, entry) and call.ended <= by
    ]
    for call, timeout in sorted(told, key=lambda each: each[0].ended):
        if call.ended >= ends:
            if run is not None and run.outcome == "stop" and run.ended <= call.ended + HASTE:
                # It saved nothing: the task had already been stopped because its lease was lost.
                break
            first_expired_at = min(first_expired_at, ends)
        # A worker that is stopped right after the answer was sent reads it only afterwards.
        is_certain = is_certain and after(call.ended + HASTE, delivery.worker.blocks) < ends
        ends = max(ends, call.started + timeout)
    return Knowledge(ends=ends, is_certain=is_certain, first_expired_at=min(first_expired_at, ends))


def may_still_be_done(earlier: Delivery, call: Call, entry: Entry, *, answered_by: float) -> bool:
    """Return whether SQS may still carry out a call for an earlier receive.

    Args:
        answered_by: A later answer does not count.
    """
    is_answered = call.fault == _FAILED_WITHIN or earlier.is_known(call, entry)
    return call.fault not in _NOT_DONE and not (is_answered and call.ended < answered_by)


def why_unread(delivery: Delivery) -> Cause | None:
    """Return why the keeper may have read the message too late or never."""
    call, worker = delivery.receive, delivery.worker
    if _was_read(delivery):
        return None
    if any(_was_left(delivery, down) for down in worker.downs):
        return Cause(LEFT_IN_POLL, "its keeper died with a poll open")
    if not delivery.entry.told:
        return Cause(UNREAD, "the answer to its receive was lost")
    is_late = call.ended + HASTE > worker.info.keeper_ended
    if is_late and call.fault and _lives_on(worker):
        return Cause(UNREAD, "its receive was answered after its keeper had ended")
    if _read_at(delivery) + HASTE > _asked_at(delivery) + delivery.timeout:
        return Cause(
            UNREAD, "it was read so long after the receive that others may have received it"
        )
    if free(call.ended, delivery.visible_at, worker.halts) > HASTE:
        return None
    block = longest_overlap(call.ended, delivery.visible_at, worker.halts)
    return Cause(UNREAD, f"it was not read in time: {block.why}") if block else None


def was_read_at_the_end(delivery: Delivery) -> bool:
    """Return whether a keeper must have read a message that it makes no call for at the end.

    It waits for its last polls, but perhaps not as long as a fault of the proxy lasts.
    """
    was_over = delivery.worker.info.ended <= delivery.visible_at
    is_fair = _lives_on(delivery.worker) and not delivery.receive.fault
    return was_over and is_fair and not _was_read(delivery)


def came_late(delivery: Delivery) -> bool:
    """Return whether its lease had so little time left that it waits for an extension.

    It is handed over only if the extension is confirmed, whatever `sqs_heartbeat_on_lost` is
    (docs/internals/leases.md, "What is known of a lease").
    """
    ends = _asked_at(delivery) + delivery.timeout
    return _read_at(delivery) + delivery.queue.threshold > ends


def _was_read(delivery: Delivery) -> bool:
    """Return whether its worker made a call for it, got it, or ran it."""
    calls = [*delivery.changes, *delivery.deletes]
    has_called = any(call.worker == delivery.receive.worker for call, _ in calls)
    return has_called or delivery.has_arrived or delivery.is_run


def _lives_on(worker: Worker) -> bool:
    """Return whether a keeper was alive at the end of its worker."""
    return not any(down.is_for_good for down in worker.downs)


def _was_left(delivery: Delivery, down: Down) -> bool:
    """Return whether a keeper died, or was stopped until it died, before it read the answer."""
    was_sent = delivery.receive.started <= down.at + HASTE
    read_for = free(delivery.receive.ended, down.at, delivery.worker.halts)
    return down.dies and was_sent and read_for < READING_SECONDS


def _asked_at(delivery: Delivery) -> float:
    """Return when its keeper may have begun the receive: before it was stopped.

    The keeper sends the receive only when it continues.
    """
    at = delivery.receive.started
    for block in sorted(delivery.worker.halts, key=lambda block: block.end, reverse=True):
        if 0 <= at - block.end < HASTE:
            at = block.start
    return at


def _read_at(delivery: Delivery) -> float:
    """Return when its keeper may have read it: reading takes a moment, in which it may stop."""
    at = delivery.receive.ended
    for block in sorted(delivery.worker.halts, key=lambda block: block.start):
        if block.start <= at + HASTE:
            at = max(at, block.end)
    return at
