"""A lock that a signal handler can avoid."""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable
from types import TracebackType


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
