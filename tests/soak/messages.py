"""Puts together the history of each message from the records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from tests.soak.delivery import Delivery, Message, Run
from tests.soak.groups import note_groups, note_order_faults
from tests.soak.model import CHANGE, DELETE, RECEIVE, SEND, Call, Note, Records

#: Within so many seconds, answers may be recorded in another order than SQS gave them.
_AT_ONCE = 0.02


def read_messages(records: Records) -> list[Message]:
    """Return every message that was sent, with everything that is known about it."""
    messages: dict[str, Message] = {}
    copies: dict[str, list[Call]] = defaultdict(list)
    for call in records.calls:
        if call.operation != SEND:
            continue
        headers = call.entries[0].headers
        copies[headers["id"]].append(call)
        if message_id := call.entries[0].message_id:
            messages[message_id] = Message(
                message_id=message_id,
                queue=records.queues[call.queue],
                sent=call,
                task=headers["task"].rpartition(".")[2],
                task_id=headers["id"],
                group=call.entries[0].group if records.queues[call.queue].is_fifo else "",
                sequence=call.entries[0].sequence,
                copies=copies[headers["id"]],
            )
    by_handle = _add_deliveries(messages, records.calls)
    _add_ends(by_handle, records.calls)
    for note in sorted(records.notes, key=lambda note: note.at):
        if note.message_id:
            _add_note(messages[note.message_id], note)
    for message in messages.values():
        # By receive, not by time: a worker may start a message after the next receiver ran it.
        message.runs.sort(key=lambda run: run.count)
        for delivery in message.deliveries:
            _join(message, delivery)
    note_groups(messages.values())
    note_order_faults(messages.values())
    return list(messages.values())


def _add_deliveries(messages: dict[str, Message], calls: Iterable[Call]) -> dict[str, Delivery]:
    received = [
        Delivery(
            queue=messages[entry.message_id].queue,
            message_id=entry.message_id,
            task=messages[entry.message_id].task,
            receive=call,
            entry=entry,
        )
        for call in calls
        if call.operation == RECEIVE
        for entry in call.entries
    ]
    for delivery in sorted(received, key=lambda delivery: delivery.count):
        deliveries = messages[delivery.message_id].deliveries
        if deliveries:
            deliveries[-1].next = delivery
            delivery.previous = deliveries[-1]
        deliveries.append(delivery)
    return {delivery.entry.handle: delivery for delivery in received}


def _add_ends(by_handle: dict[str, Delivery], calls: Iterable[Call]) -> None:
    for call in calls:
        if call.operation in (CHANGE, DELETE):
            for entry in call.entries:
                delivery = by_handle[entry.handle]
                (delivery.changes if call.operation == CHANGE else delivery.deletes).append(
                    (call, entry)
                )


def _add_note(message: Message, note: Note) -> None:
    if note.what == "arrive":
        for delivery in message.deliveries:
            is_it = (delivery.worker, delivery.count) == (note.worker, note.count)
            delivery.has_arrived |= is_it
    elif note.what == "expire":
        message.expired.append(note)
    elif note.what == "start":
        run = Run(
            task=message.task, worker=note.worker, pid=note.pid, count=note.count, start=note.at
        )
        message.runs.append(run)
    else:
        for run in message.runs:
            # A worker's main process records a stop for a task of any of its pool's processes.
            by_main = note.what == "stop" and run.worker == note.worker
            if by_main or (run.worker, run.pid, run.count) == (note.worker, note.pid, note.count):
                run.end(note)


def _join(message: Message, delivery: Delivery) -> None:
    """Find out which run belongs to a receive, and when and why it became visible."""
    delivery.run = next((run for run in reversed(message.runs) if delivery.concerns(run)), None)
    if delivery.next is None:
        # SQS may carry out a delayed delete after one that was sent later.
        done = [(call, entry) for call, entry in delivery.deletes if entry.done]
        message.deleted = min(done, key=lambda each: each[0].forwarded, default=None)
    delivery.visible_at = delivery.receive.done + delivery.timeout
    changes = [
        (call, entry)
        for each in message.deliveries[: message.deliveries.index(delivery) + 1]
        for call, entry in each.changes
        # An earlier call that was forwarded before the receive is what made it visible.
        if entry.done and (each is delivery or call.forwarded > delivery.receive.done)
    ]
    until = delivery.next.receive.done if delivery.next else math.inf
    for call, entry in sorted(changes, key=lambda change: change[0].forwarded):
        # SQS may do a call only when the timeout has ended, and answer a receive just before.
        came_late = delivery.visible_at <= call.done and until <= call.done + _AT_ONCE
        if call.forwarded < min(delivery.visible_at, until) and not came_late:
            delivery.visible_at = call.done + entry.timeout
            delivery.ended_by = None if entry.timeout >= delivery.queue.shortest else (call, entry)
