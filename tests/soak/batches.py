"""Batches that were not run, since a message of theirs was lost before they were begun."""

from __future__ import annotations

from collections.abc import Iterable

from tests.soak.blocks import Block
from tests.soak.delivery import Message
from tests.soak.table import BATCH_LOST, Cause
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import knowledge_of


def note_lost_of_batches(messages: Iterable[Message], histories: dict[str, WorkerHistory]) -> None:
    """Note in each worker's history which messages of batches it lost before it began them."""
    for message in messages:
        for delivery in message.deliveries:
            history, run = histories[delivery.worker], delivery.run
            over = knowledge_of(delivery, history).lapsed
            if message.task == "together" and (run is None or run.start > over):
                why = Cause(BATCH_LOST, "a message of its batch was lost")
                held = Block(why=why, start=delivery.receive.done, end=over)
                history.lost_of_batches.append((message.message_id, held))
