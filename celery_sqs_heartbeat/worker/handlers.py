"""Keeps the handlers of signals out of locks that the code which they interrupt may hold.

Celery's cold and soft shutdown run in them. They release messages, which changes what the
keeper has, and calls the event loop.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.keeper import LeaseKeeper

#: Those that Celery shuts down on (celery/apps/worker.py).
_SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)


def put_off_signals(keeper: LeaseKeeper) -> None:
    """Have a signal that comes in the middle of a call of the keeper's handled right after it."""
    if threading.current_thread() is not threading.main_thread():
        # Signals are handled on the main thread only.
        return
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            signal.signal(number, _outside(keeper, handler))


def _outside(keeper: LeaseKeeper, handler: Callable[..., Any]) -> Callable[..., Any]:
    def handle(number: int, frame: Any) -> None:
        if not keeper.put_off(lambda: signal.raise_signal(number)):
            handler(number, frame)

    return handle


def let_handlers_call_soon(hub: Any) -> None:
    """Have the event loop called in a handler, whatever the signal interrupted.

    Since kombu 5.7 that takes a lock: after a signal which came while the interrupted frame
    had it, Celery itself would wait for ever for the ack of a task that ends in the shutdown.
    """
    if hasattr(hub, "_ready_lock"):
        hub._ready_lock = threading.RLock()
