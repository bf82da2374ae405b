"""How a worker's queues are polled, as its keeper knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.observe.polled import PolledQueue, PolledQueues


def polled_message(queues: PolledQueues, now: float) -> Message:
    """Return the message for what is known of each queue's polls."""
    return (
        "polled",
        [
            (
                each.queue,
                None if each.age is None else now - each.age,
                each.unanswered,
                each.is_deaf,
            )
            for each in queues.view()
        ],
    )


class ReportedPolls:
    """What a worker has reported last of its polls."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._queues: list[Any] = []

    def take(self, queues: list[Any]) -> None:
        """Take in a report."""
        self._queues = queues

    def view(self) -> list[PolledQueue]:
        """Return what is known of each queue."""
        now = self._now()
        return [
            PolledQueue(
                queue=queue,
                age=None if answered_at is None else max(0.0, now - answered_at),
                unanswered=unanswered,
                is_deaf=is_deaf,
            )
            for queue, answered_at, unanswered, is_deaf in self._queues
        ]
