"""Makes blocking calls beside their caller, as many as are needed at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

logger = logging.getLogger(__name__)

#: How long an idle thread waits for a job, in seconds.
LINGER_SECONDS = 60.0


class CallerThreads:
    """Runs jobs on up to `size` threads; a thread is started when none is idle.

    Not a `ThreadPoolExecutor`: its threads are joined when the interpreter exits, so a
    call that hangs would hold up the worker's end.

    Args:
        size: The most jobs at once.
        name: Of the threads.
        most_stand_ins: The most threads that take the place of stuck ones.
    """

    def __init__(self, size: int, name: str, *, most_stand_ins: int = 0) -> None:
        self._most_stand_ins = most_stand_ins
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # The handler of a signal may stop a keeper whose stop it has interrupted.
        self._lock = threading.RLock()
        self._threads = 0
        self._unfinished = 0
        self._stand_ins = 0
        self._is_closed = False

    def submit(self, job: Callable[[], object]) -> None:
        """Run `job` soon. It should not raise: its error would only be logged.

        Not at all when this is closed.

        Raises:
            RuntimeError: There is no thread and the system grants none. The job is not run.
        """
        with self._lock:
            if self._is_closed:
                return
            if self._threads < min(self._unfinished + 1, self._size + self._stand_ins):
                try:
                    self._start_thread()
                except RuntimeError:
                    if not self._threads:
                        raise
            self._unfinished += 1
            # Under the lock: a thread that finds nothing to do must not end just now.
            self._jobs.put(job)

    def add_stand_in(self) -> bool:
        """Allow one more thread in the place of a stuck one; return whether that is possible."""
        with self._lock:
            has_room = self._stand_ins < self._most_stand_ins
            self._stand_ins += has_room
            return has_room

    def end_stand_in(self) -> None:
        """Allow one thread less: a stuck one goes on."""
        with self._lock:
            self._stand_ins -= 1

    def close(self) -> None:
        """Let every thread end after its current job. Not waited for."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._threads):
                self._jobs.put(None)

    def _start_thread(self) -> None:
        name = f"{self._name}-{self._threads + 1}"
        threading.Thread(target=self._run, name=name, daemon=True).start()
        self._threads += 1

    def _run(self) -> None:
        try:
            while self._do_next():
                pass
        except BaseException:
            # The thread ends: the next job is to have another.
            with self._lock:
                self._threads -= 1
            raise

    def _do_next(self) -> bool:
        try:
            job = self._jobs.get(timeout=LINGER_SECONDS)
        except Empty:
            return not self._retire()
        if job is None:
            return False
        try:
            job()
        except Exception:
            logger.exception("sqs-heartbeat: a job of thread %s failed", self._name)
        finally:
            with self._lock:
                self._unfinished -= 1
        return True

    def _retire(self) -> bool:
        """Count this thread out, unless a job was put in just now."""
        with self._lock:
            idle = self._jobs.empty()
            self._threads -= idle
            return idle
