"""The threads that read polls in pools without an event loop: greenlets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from weakref import WeakSet

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.poll import Poll, awaited_until

#: Their name.
POLL_THREAD = "sqs-heartbeat-poll"


class PollThreads:
    """A worker's threads for additional polls, of all its channels."""

    def __init__(self) -> None:
        self._threads: WeakSet[threading.Thread] = WeakSet()

    def start(self, job: Callable[[], object]) -> None:
        """Run a job on its own thread.

        Raises:
            RuntimeError: The system allows no more threads.
        """
        thread = threading.Thread(target=job, name=POLL_THREAD, daemon=True)
        self._threads.add(thread)
        thread.start()

    def wait(self, polls: Iterable[Poll]) -> None:
        """Return when the threads have read their polls, or when these are no longer awaited.

        Args:
            polls: The worker's open polls.
        """
        until = awaited_until(polls, clock.now())
        for thread in tuple(self._threads):
            thread.join(max(0.0, until - clock.now()))
