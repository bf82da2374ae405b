"""Batches that did not run because one of their messages was lost before they started."""

from __future__ import annotations

from collections.abc import Iterable

from tests.soak.blocks import Block
from tests.soak.delivery import Message
from tests.soak.table import BATCH_LOST, Cause
from tests.soak.worker_history import WorkerHistory
from tests.soak.worker_knowledge import knowledge_of


def note_lost_of_batches(messages: Iterable[Message], histories: dict[str, WorkerHistory]) -> None:
    """Note in each worker's history which messages it lost before their batch started."""
    for message in messages:
        for delivery in message.deliveries:
            history, run = histories[delivery.worker], delivery.run
            over = knowledge_of(delivery, history).first_expired_at
            if message.task == "together" and (run is None or run.start > over):
                why = Cause(BATCH_LOST, "a message of its batch was lost")
                held = Block(why=why, start=delivery.receive.done, end=over)
                history.lost_of_batches.append((message.message_id, held))
