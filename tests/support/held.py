"""A keeper that another thread is changing at the moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from tests.support.waiting import PATIENCE


class HeldClock:
    """A keeper's clock that can stop one thread: the keeper reads it while it holds its lock."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._holder: threading.Thread | None = None
        self._is_held = threading.Event()
        self._may_go_on = threading.Event()

    def __call__(self) -> float:
        if threading.current_thread() is self._holder:
            self._is_held.set()
            self._may_go_on.wait(PATIENCE)
        return self._now()

    @contextmanager
    def amid_a_change(self, keeper: ThreadKeeper) -> Iterator[None]:
        """Have a thread hold the keeper's lock while the block runs."""
        self._holder = threading.Thread(target=keeper.done, args=("unknown",))
        self._holder.start()
        assert self._is_held.wait(PATIENCE)
        try:
            yield
        finally:
            self._may_go_on.set()
            self._holder.join(PATIENCE)
