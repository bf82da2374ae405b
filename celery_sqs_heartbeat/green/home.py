"""The hub that the tasks' greenlets run in, for what other threads leave to it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial

from celery_sqs_heartbeat.common import native
from celery_sqs_heartbeat.green.inbox import Inbox

_inbox: Inbox | None = None
_pid = 0


def home() -> Inbox:
    """Return the inbox of the tasks' hub: that of the thread which asks first.

    From then on it also writes the log lines of the keeper's threads. Handlers' locks and
    sockets are cooperative: eventlet's hang for good once two threads meet at one.
    """
    global _inbox, _pid
    if _inbox is None or _pid != os.getpid():
        _inbox, _pid = Inbox(), os.getpid()
        # A line of the log names its thread; of one that is new to `threading` that takes this
        # lock. Eventlet's hub breaks when a greenlet is started at that moment.
        threading._active_limbo_lock = native.RLock()  # type: ignore[attr-defined]
        # A greenlet, where `threading` is replaced.
        threading.Thread(target=_inbox.serve, name="sqs-heartbeat-home", daemon=True).start()
        _leave_logging_to(_inbox)
    return _inbox


def _leave_logging_to(inbox: Inbox) -> None:
    # What remains for other threads to lock is held for moments, and no greenlet switches.
    logging._lock = native.RLock()  # type: ignore[attr-defined]
    handle: Callable[[logging.Logger, logging.LogRecord], None] = logging.Logger.callHandlers

    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        if native.is_apart():
            inbox.put(partial(handle, logger, record))
        else:
            handle(logger, record)

    logging.Logger.callHandlers = call_handlers  # type: ignore[assignment, method-assign]
