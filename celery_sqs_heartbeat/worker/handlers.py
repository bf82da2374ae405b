"""Keeps the handlers of signals out of work that they would find half done.

Celery's cold and soft shutdown run in them. They release messages, which changes what the
keeper has, call the event loop, and read open polls on another thread.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: Those that Celery shuts down on (celery/apps/worker.py).
SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)


class Interruptible(Protocol):
    """What a signal's handler must not meet in the middle of its work."""

    def defer(self, job: Callable[[], object]) -> bool:
        """Have a job done right after the work that this thread is in; False if it is in none."""


def put_off_signals(*guarded: Interruptible) -> None:
    """Have a signal that comes in the middle of the work of one of these handled right after it.

    To be called again where Celery may have put other handlers in their place.
    """
    if threading.current_thread() is not threading.main_thread():
        # Signals are handled on the main thread only.
        return
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, _Outside):
            signal.signal(number, _Outside(guarded, handler))


class _Outside:
    """Handles a signal outside of all guarded work."""

    def __init__(self, guarded: Sequence[Interruptible], handler: Callable[..., Any]) -> None:
        self._guarded = guarded
        self._handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        if any(each.defer(lambda: signal.raise_signal(number)) for each in self._guarded):
            return
        try:
            self._handler(number, frame)
        finally:
            # Celery's handlers replace each other: at Ctrl+C, and as a shutdown goes on.
            put_off_signals(*self._guarded)


def release_before_soft_shutdown(
    parent: Any, guarded: Sequence[Interruptible], release: Callable[[], None]
) -> None:
    """Release what waits before a worker's soft shutdown gives running tasks their time.

    Celery waits in the signal's handler: the event loop stands still meanwhile.
    """
    wait = parent.wait_for_soft_shutdown

    def release_and_wait() -> None:
        # Celery has just installed other handlers for while it waits.
        put_off_signals(*guarded)
        release()
        wait()

    parent.wait_for_soft_shutdown = release_and_wait


def let_handlers_call_soon(hub: Any) -> None:
    """Have the event loop called in a handler, whatever the signal interrupted.

    Since kombu 5.7 that takes a lock: after a signal which came while the interrupted frame
    had it, Celery itself would wait for ever for the ack of a task that ends in the shutdown.
    """
    if hasattr(hub, "_ready_lock"):
        hub._ready_lock = threading.RLock()
