"""Runs jobs outside the worker's event loop, which they would delay."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class JobThread:
    """Runs jobs in order on a daemon thread, or on a greenlet with gevent or eventlet.

    This is not an executor. The interpreter joins an executor's threads when it exits, so a user's
    handler that hangs would delay the worker's exit.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._is_started = False

    def submit(self, job: Callable[[], object]) -> None:
        """Run a job after the earlier ones. Its error is logged."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._jobs.put(job)

    def close(self) -> None:
        """Stop after the submitted jobs. This does not wait for them."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                logger.exception("sqs-heartbeat: a job of thread %s failed", self._name)


def run_beside(job: Callable[[], object], *, name: str) -> None:
    """Run a job on its own daemon thread.

    Raises:
        RuntimeError: The system allows no more threads.
    """
    threading.Thread(target=job, name=name, daemon=True).start()
