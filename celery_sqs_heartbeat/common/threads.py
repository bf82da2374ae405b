"""Threads: waits for them, wakes them, and runs blocking calls on several."""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType

logger = logging.getLogger(__name__)

#: Interval between two checks for an answer, in seconds.
_POLL_SECONDS = 0.005


class AutoResetEvent:
    """Wakes one waiting thread. If none waits, the next wait returns at once.

    It is not a `threading.Event`, because setting an event takes a lock. If a signal interrupts
    that and its handler sets the event, too, the handler would wait forever.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def set(self) -> None:
        """Wake the thread. Ringing twice has the same effect as ringing once."""
        try:
            self._silence.release()
        except RuntimeError:
            # It was already rung.
            return

    def wait(self, timeout: float) -> bool:
        """Wait for a ring, at most `timeout` seconds. Return whether it rang."""
        return self._silence.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))


def wait_for(look: Callable[[], bool | None], timeout: float) -> bool:
    """Return the first answer that is not None; False after `timeout` seconds without one.

    It polls instead of waiting on a lock, because a waiting greenlet must let others run.

    Args:
        look: Called at least once, and every few milliseconds.
    """
    deadline = time.monotonic() + timeout
    while (answer := look()) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return answer


class CallerThreads:
    """Runs jobs on up to `size` threads. Starts a thread when none is idle.

    It is not a `ThreadPoolExecutor`, because Python joins an executor's threads at exit. A call
    that hangs would then delay the worker's exit.

    Args:
        size: The most jobs at the same time.
        name: The name of the threads.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # Re-entrant: a signal may interrupt a keeper's stop, and its handler may stop the keeper.
        self._lock = threading.RLock()
        self._threads = 0
        self._unfinished = 0
        self._is_closed = False

    def submit(self, job: Callable[[], object]) -> None:
        """Run `job` soon, unless this pool is closed. Errors of the job are only logged.

        Raises:
            RuntimeError: There is no thread and the system starts none. The job does not run.
        """
        with self._lock:
            if self._is_closed:
                return
            if self._threads < min(self._unfinished + 1, self._size):
                try:
                    self._start_thread()
                except RuntimeError:
                    if not self._threads:
                        raise
            self._unfinished += 1
            self._jobs.put(job)

    def close(self) -> None:
        """Let every thread end after its current job, without waiting."""
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
            # This thread ends, so the next job needs another one.
            with self._lock:
                self._threads -= 1
            raise

    def _do_next(self) -> bool:
        job = self._jobs.get()
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


class SignalSafeLock:
    """A re-entrant lock which knows whether this thread holds it.

    A signal handler may interrupt the main thread in the middle of a change. A re-entrant lock
    would let the handler in at once, to see a half-finished change. If the handler then waits, as
    Celery's soft shutdown does, no other thread gets the lock meanwhile. So a handler calls
    `defer`: if the thread holds the lock, the work runs after the thread has left it.
    """

    def __init__(self) -> None:
        # The lock of `_thread`, which gevent and eventlet do not replace. It belongs to a thread,
        # and no greenlet switches while it is held. A replaced lock of `threading` would belong to
        # a greenlet, and a handler that runs on the hub could not wait for another greenlet.
        self._lock = _thread.RLock()
        self._put_off: deque[Callable[[], object]] = deque()

    def defer(self, job: Callable[[], object]) -> bool:
        """Run the job after this thread has left the lock. False if it does not hold the lock."""
        if not self._is_inside():
            return False
        self._put_off.append(job)
        return True

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()
        while self._put_off and not self._is_inside():
            try:
                job = self._put_off.popleft()
            except IndexError:
                # Another thread, which left the lock a moment later, was faster.
                return
            job()

    def _is_inside(self) -> bool:
        # Not in typeshed.
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]
