"""The state of a worker's polls, as the worker reports it to its keeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.observe.polled import PolledQueue, PolledQueues


def polled_message(queues: PolledQueues, now: float) -> Message:
    """Return the message that reports the polls of each queue."""
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
    """The latest report of a worker about its polls."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._queues: list[Any] = []
        # By URL: when the last open poll ends.
        self._ends: dict[str, float] = {}

    def note(self, queue_url: str, ends_at: float) -> None:
        """Note when the last open poll of a queue ends."""
        self._ends[queue_url] = ends_at

    def left(self, queue_url: str) -> float:
        """Return how long an open poll may still receive a message of the queue, in seconds.

        SQS may not notice that the poll's worker is dead. It then hides the message for a whole
        visibility timeout, though no one received it.
        """
        return max(0.0, self._ends.get(queue_url, 0.0) - self._now())

    def take(self, queues: list[Any]) -> None:
        """Store a report."""
        self._queues = queues

    def view(self) -> list[PolledQueue]:
        """Return the state of each queue's polls."""
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
