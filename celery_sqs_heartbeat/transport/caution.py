"""Which FIFO queues are received from message by message, as tasks fail there."""

from __future__ import annotations

from collections.abc import Callable

from celery_sqs_heartbeat.common import clock

#: For how long after a failure, in seconds: where tasks fail more often than that, all the time.
CAUTIOUS_SECONDS = 60.0


class Caution:
    """Remembers when a message last came back to each queue whose groups are kept in order.

    With it come those behind it, up to nine, only to go back again if it fails again. Each receive
    counts: towards `maxReceiveCount`, a retry's number, and the delay of a release. So a receive
    then asks for one message.
    """

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._failed_at: dict[str, float] = {}

    def note(self, queue_url: str) -> None:
        """Note that a message of a queue has failed, or has come again."""
        self._failed_at[queue_url] = self._now()

    def is_due(self, queue_url: str) -> bool:
        """Return whether to receive one message at a time from a queue."""
        failed_at = self._failed_at.get(queue_url)
        return failed_at is not None and self._now() - failed_at < CAUTIOUS_SECONDS
