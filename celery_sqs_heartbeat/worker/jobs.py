"""Does jobs beside the worker's loop, so that none of them holds it up."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class JobThread:
    """Does jobs in order, on a daemon thread; a greenlet where gevent or eventlet has it so.

    Not an executor: its threads are joined when the interpreter exits, and a handler of the
    user's that hangs would hold up the worker's end.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._is_started = False

    def submit(self, job: Callable[[], object]) -> None:
        """Do a job after those before it. Its error is logged."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._jobs.put(job)

    def close(self) -> None:
        """Do no more after what was submitted. Not waited for."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                logger.exception("sqs-heartbeat: a job of thread %s failed", self._name)


def run_beside(job: Callable[[], object], *, name: str) -> None:
    """Do a job on a daemon thread of its own.

    Raises:
        RuntimeError: The system grants no more threads.
    """
    threading.Thread(target=job, name=name, daemon=True).start()
