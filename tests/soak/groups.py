"""Message groups of FIFO queues: their order, and how a message affects those behind it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from tests.soak.delivery import Delivery, Message
from tests.soak.model import Call


def note_groups(messages: Iterable[Message]) -> None:
    """Note for each receive which other messages of its group its worker held at that time."""
    for group in _groups(messages):
        for index, message in enumerate(group):
            for delivery in message.deliveries:
                for other in group[:index]:
                    shared = [each for each in other.deliveries if _overlap(each, delivery)]
                    delivery.ahead += shared
                    for each in shared:
                        each.behind.append(delivery)
                    delivery.refused_ahead += _refused_deletes(other, delivery.worker)


def note_order_faults(messages: Iterable[Message]) -> None:
    """Note for each message whether it began before SQS had deleted all messages ahead of it.

    Nothing excuses that.
    """
    for group in _groups(messages):
        for index, message in enumerate(group):
            for run in message.runs:
                early = [each for each in group[:index] if not _is_done(each, run.start)]
                if early:
                    message.order_faults.append(
                        f"began on {run.worker} as receive {run.count}, before "
                        f"{early[0].message_id} of its group was done and deleted"
                    )


def _groups(messages: Iterable[Message]) -> Iterable[list[Message]]:
    groups: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in messages:
        if message.group:
            groups[message.queue.name, message.group].append(message)
    return [sorted(group, key=lambda message: message.sequence) for group in groups.values()]


def _is_done(message: Message, at: float) -> bool:
    """Return whether a message had succeeded by then, and its delete had been sent to SQS."""
    ended = any(run.outcome == "end" and run.ended <= at for run in message.runs)
    return ended and message.deleted is not None and message.deleted[0].forwarded <= at


def _overlap(ahead: Delivery, delivery: Delivery) -> bool:
    """Return whether one worker held both receives at the same time."""
    starts = max(ahead.receive.done, delivery.receive.done)
    return ahead.worker == delivery.worker and starts < min(_end(ahead), _end(delivery))


def _refused_deletes(message: Message, worker: str) -> list[Call]:
    return [
        call
        for delivery in message.deliveries
        for call, entry in delivery.deletes
        if call.worker == worker and entry.refused
    ]


def _end(delivery: Delivery) -> float:
    if delivery.next is not None:
        return delivery.next.receive.done
    return min((call.done for call, entry in delivery.deletes if entry.done), default=math.inf)
