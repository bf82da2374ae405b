"""A lock that a signal's handler can stay out of."""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType


class UninterruptedLock:
    """A re-entrant lock which knows whether this thread is in it.

    The handler of a signal interrupts the main thread anywhere, in the middle of a change,
    too. There it would get a re-entrant lock at once and meet half of that change; and if it waits,
    as Celery's soft shutdown does, no other thread gets the lock for all that time. So it
    asks, and where it would, puts its work off until the thread has left the lock.
    """

    def __init__(self) -> None:
        # Of C, so neither gevent nor eventlet replaces it, in whose workers it is held, too: it
        # belongs to a thread, and no greenlet switches within it. `threading`'s, replaced, would
        # belong to a greenlet, and a handler that runs on the hub could not wait for another's.
        self._lock = _thread.RLock()
        #: How often the thread that is in the lock has entered it.
        self._depth = 0
        self._put_off: deque[Callable[[], object]] = deque()

    def put_off(self, job: Callable[[], object]) -> bool:
        """Have the job done when this thread has left the lock; False where it is not in it."""
        if not self._is_inside():
            return False
        self._put_off.append(job)
        return True

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Leave the lock for the time of the block, if this thread is in it.

        What was put off is done first, and handlers run at any time meanwhile.
        """
        if not self._is_inside():
            yield
            return
        depth, self._depth = self._depth, 0
        for _ in range(depth):
            self._lock.release()
        try:
            self._do_what_was_put_off()
            yield
        finally:
            for _ in range(depth):
                self._lock.acquire()
            self._depth = depth

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Not where a handler's error has kept `opened` from entering again.
        if self._is_inside():
            self._depth -= 1
            self._lock.release()
        if self._put_off and not self._is_inside():
            self._do_what_was_put_off()

    def _is_inside(self) -> bool:
        # Not in typeshed.
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _do_what_was_put_off(self) -> None:
        while True:
            try:
                job = self._put_off.popleft()
            except IndexError:
                # Another thread, which left the lock a moment later, was quicker.
                return
            job()
