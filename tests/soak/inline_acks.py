"""What an inline ack changes: kombu deletes the message, once, on the thread that reads.

The lease ends at the ack, so nothing extends or releases the message if its delete fails.
"""

from __future__ import annotations

import math

from tests.soak.blocks import Block, free
from tests.soak.delivery import Delivery
from tests.soak.model import DELETE, Call, Records
from tests.soak.releases import GRACE
from tests.soak.table import ACK_FAILED, KILLED, UNREAD, Cause
from tests.soak.worker_history import WorkerHistory

#: How long kombu's client waits for an answer, in seconds: botocore's default.
CLIENT_SECONDS = 60.0


def why_undeleted(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return why a message that was acked inline was not deleted, if that may be so."""
    if not history.info.acks_inline or delivery.queue.is_fifo:
        return None
    mine = [(call, entry) for call, entry in delivery.deletes if call.worker == delivery.worker]
    if any(call.is_batch for call, _ in mine):
        # Its channel was closed, so its keeper deletes it.
        return None
    if mine:
        is_deleted = any(entry.done for _, entry in mine)
        return None if is_deleted else Cause(ACK_FAILED, "its inline delete failed")
    run, ended = delivery.run, history.info.ended
    if run is None or not run.is_closed or not history.was_killed:
        return None
    unread = [*history.still, *history.asleep, *history.waiting]
    if free(run.ended, ended, unread) > GRACE:
        return None
    return Cause(KILLED, "its worker was killed as it acked it")


def note_deletes(records: Records, histories: dict[str, WorkerHistory]) -> None:
    """Note in each worker's history when it waited for inline deletes."""
    rows: dict[tuple[str, str], list[Call]] = {}
    for call in records.calls:
        if call.operation == DELETE and not call.is_batch:
            rows.setdefault((call.worker, call.entries[0].handle), []).append(call)
    for (worker, _), calls in rows.items():
        if worker in histories:
            histories[worker].waiting.append(_wait(calls))


def _wait(calls: list[Call]) -> Block:
    """Return the time of all tries of a delete, with boto3's pauses between them."""
    return Block(
        why=Cause(UNREAD, "its worker waited for an inline delete"),
        start=min(call.started for call in calls),
        end=max(_end(call) for call in calls),
    )


def _end(call: Call) -> float:
    """Return when the worker waited no longer for a call."""
    # On a connection that was forgotten, no answer comes.
    is_unanswered = call.forwarded < math.inf and call.done == math.inf
    return call.started + CLIENT_SECONDS if is_unanswered else call.ended
