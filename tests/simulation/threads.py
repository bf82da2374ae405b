"""The threads on which a simulated worker makes its calls: as many as a real worker has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from celery_sqs_heartbeat.keeper.dispatch import MAX_THREADS
from celery_sqs_heartbeat.leases.calls import Call


class Threads:
    """Lets calls begin while a thread is free. The others wait their turn.

    Args:
        on_wait: Called when a call has to wait for a thread.
    """

    def __init__(self, on_wait: Callable[[Call], None]) -> None:
        self._on_wait = on_wait
        self._busy: set[int] = set()
        self._waiting: deque[tuple[Call, Callable[[], None]]] = deque()

    def submit(self, call: Call, begin: Callable[[], None]) -> None:
        """Begin a call now, or once a thread is free."""
        self._waiting.append((call, begin))
        self._begin()
        if self._waiting:
            self._on_wait(call)

    def has_begun(self, call: Call) -> bool:
        """Return whether a call has a thread."""
        return call.number in self._busy

    def end(self, call: Call) -> None:
        """Note that a call has returned."""
        self._busy.discard(call.number)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._busy) < MAX_THREADS:
            call, begin = self._waiting.popleft()
            self._busy.add(call.number)
            begin()
