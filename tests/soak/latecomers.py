"""Messages that arrived so late that their worker waits for an extension before it runs them.

The worker starts such a message only if the extension is confirmed, whatever
`sqs_heartbeat_on_lost` is (docs/internals/leases.md, "What is known of a lease"). It reads nothing
while it waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.soak.blocks import Block
from tests.soak.delivery import Delivery, Message
from tests.soak.reading import asked_at, before_its_answer_was_read
from tests.soak.table import UNREAD, Cause
from tests.soak.worker_history import WorkerHistory

#: A worker waits for at least so many seconds, and for the message's threshold if that is longer
#: (ibid.).
LEAST_WAIT = 1.0


def came_late(delivery: Delivery, history: WorkerHistory) -> bool:
    """Return whether its lease had so little time left that it waits for an extension."""
    ends = asked_at(delivery, history) + delivery.timeout
    return _read_at(delivery, history) + delivery.queue.threshold > ends


def note_waits(messages: Iterable[Message], histories: dict[str, WorkerHistory]) -> None:
    """Note in each worker's history when it waited for the extension of a late message."""
    deliveries = [
        delivery for message in messages for delivery in message.deliveries if delivery.entry.told
    ]
    # One wait may make the next message late.
    for delivery in sorted(deliveries, key=lambda delivery: delivery.receive.ended):
        history = histories[delivery.worker]
        if came_late(delivery, history):
            why = Cause(UNREAD, "its worker waited for the extension of a late message")
            start = _read_at(delivery, history)
            end = start + max(LEAST_WAIT, delivery.queue.threshold)
            history.waiting.append(
                Block(why=why, start=start, end=end, message_id=delivery.message_id)
            )


def _read_at(delivery: Delivery, history: WorkerHistory) -> float:
    waits = before_its_answer_was_read(delivery, history)
    return max([delivery.receive.ended, *(block.end for block in waits)])
