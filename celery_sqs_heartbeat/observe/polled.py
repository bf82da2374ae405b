"""How each queue's polls are answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.message import queue_name

#: Polls in a row without an answer after which a queue counts as deaf: a single one may be a
#: lost NAT entry, and the poll after it has a connection of its own.
DEAF_AFTER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledQueue:
    """What is known of one queue's polls at one moment.

    Attributes:
        age: Seconds since its last answered poll, or since its first poll where none was
            answered; None where nothing consumes from it any more.
        unanswered: How many of its polls were not answered in time.
        is_deaf: Whether its last polls were not answered, one after the other.
    """

    queue: str
    age: float | None
    unanswered: int
    is_deaf: bool


class Polled(Protocol):
    """Tells how each queue's polls are answered."""

    def view(self) -> list[PolledQueue]:
        """Return what is known of each queue."""


class _Queue:
    def __init__(self, queue_url: str) -> None:
        self.url = queue_url
        self.answered_at: float | None = None
        self.unanswered = 0
        self.unanswered_in_a_row = 0


class PolledQueues:
    """Notes of every queue when it was polled with success, for health and metrics.

    Only polls count. So a worker that is full, or in a solo pool's task, and does not poll is
    not deaf, whatever became of its last polls. The worker's loop writes, by the names it has
    for queues; any thread reads.
    """

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._queues: dict[str, _Queue] = {}

    def asked(self, name: str, queue_url: str) -> None:
        """Note that a queue is polled."""
        queue = self._queues.setdefault(name, _Queue(queue_url))
        if queue.answered_at is None:
            queue.answered_at = self._now()

    def answered(self, name: str) -> None:
        """Note that SQS answered a poll, with messages or without. An error is no answer."""
        queue = self._queues.get(name)
        if queue is not None and queue.answered_at is not None:
            queue.answered_at = self._now()
            queue.unanswered_in_a_row = 0

    def unanswered(self, name: str) -> None:
        """Note that a poll was not answered in time."""
        queue = self._queues[name]
        queue.unanswered += 1
        queue.unanswered_in_a_row += 1

    def wait(self, name: str) -> None:
        """Note that the queue is not polled until there is room for more messages.

        It is not deaf meanwhile, and after that from its next unanswered poll on: it may be
        well again by then, and room that comes and goes must not hide that it is not.
        """
        if queue := self._queues.get(name):
            queue.unanswered_in_a_row = min(queue.unanswered_in_a_row, DEAF_AFTER - 1)

    def rest(self, name: str) -> None:
        """Note that the queue is not consumed from any more. What was counted stays."""
        if queue := self._queues.get(name):
            queue.answered_at = None
            queue.unanswered_in_a_row = 0

    def rest_all(self) -> None:
        """Note that nothing is consumed from any more: the worker is ending."""
        for name in list(self._queues):
            self.rest(name)

    def view(self) -> list[PolledQueue]:
        """Return what is known of each queue."""
        now = self._now()
        return [
            PolledQueue(
                queue=queue_name(queue.url),
                age=None if (at := queue.answered_at) is None else max(0.0, now - at),
                unanswered=queue.unanswered,
                is_deaf=queue.unanswered_in_a_row >= DEAF_AFTER,
            )
            for queue in list(self._queues.values())
        ]
