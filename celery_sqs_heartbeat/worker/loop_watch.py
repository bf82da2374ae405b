"""Tells the keeper whether a worker's event loop turns, and which processes its pool has."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.transport.binding import Heartbeat

#: After how many seconds without an answer the event loop is asked again to show that it turns.
_ASK_AGAIN = 5.0
#: How long a worker without an event loop may wait for a free greenlet, in seconds.
_LONGEST_WAIT = 68.0


class LoopWatch:
    """Reports to a keeper, once a second, what it can't see itself."""

    def __init__(self, worker: Any, heartbeat: Heartbeat) -> None:
        self._worker = worker
        self._heartbeat, self._keeper = heartbeat, heartbeat.keeper
        self._pool: list[int] = []
        self._is_asked, self._asked_at = False, 0.0
        self._is_connected, self._has_ended = False, False
        self._turned_at = 0.0

    def report(self) -> None:
        """Ask the event loop for a turn, and report the pool's processes. The pool runs by now."""
        self._ask_loop()
        pool = _processes(self._worker.pool)
        if pool != self._pool:
            self._pool = pool
            self._keeper.order("pool", pool)

    def end(self) -> None:
        """Tell the keeper that the worker's event loop has ended, because the worker ends."""
        self._has_ended = True
        self._keeper.order("loop", None, False)

    def _ask_loop(self) -> None:
        """Ask the event loop to show that it turns, unless it has not yet answered.

        While the worker connects, no loop turns: that is no stall, which a restart would end.
        """
        now, consumer = self._keeper.now(), self._worker.consumer
        connection = consumer and consumer.connection
        is_open = bool(connection and connection.connected)
        if not is_open:
            if self._is_connected and not self._has_ended:
                self._is_connected = False
                self._keeper.order("connected", False)
                self._keeper.order("loop", None, False)
        # A question without an answer for long may have been lost with a connection.
        elif now - self._asked_at >= (_ASK_AGAIN if self._is_asked else 0):
            self._is_asked, self._asked_at = True, now
            consumer.call_soon(self._tick)
        if (turned_at := self._heartbeat.turned_at) > self._turned_at:
            self._turned_at = turned_at
            # A solo pool may run a task since its first poll: then the loop answers only after it.
            self._note_turn(is_open=is_open)

    def _tick(self) -> None:
        self._is_asked = False
        self._note_turn(is_open=True)

    def _note_turn(self, *, is_open: bool) -> None:
        if is_open and not (self._is_connected or self._has_ended):
            self._is_connected = True
            self._keeper.order("connected", True)
            self._keeper.order("loop", *_loop(self._worker))
        self._keeper.say("tick")


def _loop(worker: Any) -> tuple[float, bool]:
    """Return how long a worker's loop may wait for messages, and whether tasks run in it."""
    waits = _LONGEST_WAIT if worker.hub is None else 0.0
    return waits, type(worker.pool).__module__.endswith(".solo")


def _processes(pool: Any) -> list[int]:
    """Return the process ids of a pool, or [] if it has no processes."""
    if not getattr(pool, "uses_semaphore", False):
        return []
    processes = getattr(getattr(pool, "_pool", None), "_pool", None)
    return sorted(each.pid for each in processes or () if each.pid is not None)
