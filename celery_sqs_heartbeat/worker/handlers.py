"""Keeps signal handlers from interrupting work that must not be seen half done.

Celery's cold and soft shutdown run in signal handlers. They release messages, which changes the
keeper's records, call the event loop, and read open polls on another thread.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from celery.bootsteps import TERMINATE

#: The signals on which Celery shuts down (celery/apps/worker.py).
SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)


class Interruptible(Protocol):
    """Work that a signal handler must not interrupt."""

    def defer(self, job: Callable[[], object]) -> bool:
        """Do a job right after the work of this thread; return False if it does no such work."""


def put_off_signals(*guarded: Interruptible) -> None:
    """If a signal arrives during the work of one of these, handle it right after that work.

    Call this again whenever Celery may have replaced the handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        # Signals are handled on the main thread only.
        return
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, _Outside):
            signal.signal(number, _Outside(guarded, handler))


class _Outside:
    """Handles a signal outside all guarded work."""

    def __init__(self, guarded: Sequence[Interruptible], handler: Callable[..., Any]) -> None:
        self._guarded = guarded
        self._handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        if any(each.defer(lambda: signal.raise_signal(number)) for each in self._guarded):
            return
        try:
            self._handler(number, frame)
        finally:
            # Celery's handlers replace each other: at Ctrl+C, and as a shutdown continues.
            put_off_signals(*self._guarded)


def release_before_soft_shutdown(
    parent: Any, guarded: Sequence[Interruptible], release: Callable[[], None]
) -> None:
    """Release waiting messages before a soft shutdown waits for the running tasks.

    Celery waits in the signal handler, and the event loop stalls meanwhile.
    """
    wait = parent.wait_for_soft_shutdown

    def release_and_wait() -> None:
        # Celery has just installed other handlers for the time of its wait.
        put_off_signals(*guarded)
        release()
        wait()

    parent.wait_for_soft_shutdown = release_and_wait


def end_after_cold_shutdown(parent: Any, end: Callable[[], object]) -> None:
    """Call `end` after a cold shutdown, for which Celery sends no signal.

    The process of an embedded worker lives on. The threads of a pool do, too, until their tasks
    have ended, so this waits for them as Python does at the end of a process.
    """
    terminate = parent.terminate

    def terminate_and_end(*args: Any, **kwargs: Any) -> None:
        terminate(*args, **kwargs)
        # A signal may have interrupted a shutdown, which continues.
        if parent.blueprint.state == TERMINATE:
            executor = getattr(parent.pool, "executor", None)
            if executor is not None:
                executor.shutdown()
            end()

    parent.terminate = terminate_and_end


def let_handlers_call_soon(hub: Any) -> None:
    """Let a signal handler schedule calls on the event loop, whatever the signal interrupted.

    Since kombu 5.7, `call_soon` acquires a lock. If the signal interrupted a frame that holds the
    lock, Celery would wait indefinitely for the ack of a task that ends during the shutdown.
    """
    if hasattr(hub, "_ready_lock"):
        hub._ready_lock = threading.RLock()
