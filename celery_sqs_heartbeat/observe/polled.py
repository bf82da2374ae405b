"""Notes how SQS answers each queue's polls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.message import queue_name

#: After this many unanswered polls in a row, a queue counts as deaf. A single one may be caused by
#: a lost NAT entry, and the next poll has a new connection.
DEAF_AFTER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledQueue:
    """The state of one queue's polls at one moment.

    Attributes:
        age: Seconds since its last answered poll, or since its first poll if none was answered;
            None if nothing consumes from it any more.
        unanswered: How many of its polls were not answered in time.
        is_deaf: Whether its last `DEAF_AFTER` polls were not answered.
    """

    queue: str
    age: float | None
    unanswered: int
    is_deaf: bool


class Polled(Protocol):
    """Reports how SQS answers each queue's polls."""

    def view(self) -> list[PolledQueue]:
        """Return the state of each queue."""


class _Queue:
    def __init__(self, queue_url: str) -> None:
        self.url = queue_url
        self.answered_at: float | None = None
        self.unanswered = 0
        self.unanswered_in_a_row = 0


class PolledQueues:
    """Notes when each queue's last poll was answered, for health and metrics.

    Only polls count. A worker that does not poll, because it is full or runs a task of a solo
    pool, is not deaf, whatever happened to its last polls. The worker's event loop writes, under
    its own names for the queues. Any thread may read.
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
        """Note that SQS answered a poll, with or without messages. An error is not an answer."""
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

        Until then it is not deaf. Afterwards the next unanswered poll makes it deaf again: SQS may
        answer by then, and a worker that is full now and then must not hide that SQS does not.
        """
        if queue := self._queues.get(name):
            queue.unanswered_in_a_row = min(queue.unanswered_in_a_row, DEAF_AFTER - 1)

    def rest(self, name: str) -> None:
        """Note that nothing consumes from the queue any more. Its counts stay."""
        if queue := self._queues.get(name):
            queue.answered_at = None
            queue.unanswered_in_a_row = 0

    def rest_all(self) -> None:
        """Note that no queue is consumed from any more, because the worker is ending."""
        for name in list(self._queues):
            self.rest(name)

    def view(self) -> list[PolledQueue]:
        """Return the state of each queue."""
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
