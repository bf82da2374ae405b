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
        # By URL, when the last poll that is open ends.
        self._ends: dict[str, float] = {}

    def note(self, queue_url: str, ends_at: float) -> None:
        """Note when the last poll that a queue has at SQS ends."""
        self._ends[queue_url] = ends_at

    def left(self, queue_url: str) -> float:
        """Return how long a poll might still take a message of the queue along, in seconds.

        SQS may not notice that the one who polled is dead, and hides for a whole visibility
        timeout what it delivers to no one.
        """
        return max(0.0, self._ends.get(queue_url, 0.0) - self._now())

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
