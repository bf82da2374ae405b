"""Prepares the processes that run tasks: those of a prefork pool, and a worker's main process.

If the main process is killed, its pool processes survive. Each would run its task to the end, and
nothing would take its ack. The keeper releases their messages only after they are gone. So they
exit at once, and the tasks can run again at once.

In all of them, a task may raise `ReleaseMessage`, which Celery logs as an error with a traceback,
as it does any `Reject`. If the worker has a lease on the message, it logs the delay of the release
(`transport`). In other processes and in other workers, one line says why the delay has no effect.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from typing import Any

from celery import current_task, signals

from celery_sqs_heartbeat.current.current_message import ReleaseMessage, current_message
from celery_sqs_heartbeat.current.sharing import VARIABLE, shared_table
from celery_sqs_heartbeat.errors import NoLease
from celery_sqs_heartbeat.worker.retrying import release_retries

#: Celery's logger that reports how tasks end.
_TRACE = "celery.app.trace"
#: linux/prctl.h
_PR_SET_PDEATHSIG = 1

#: The worker's main process, and whether its main thread forked this one. Both are None in a
#: spawned process, which has its own interpreter.
_worker: int | None = None
_is_forked_by_main: bool | None = None


def prepare_pool_processes() -> None:
    """Prepare every pool process that starts from now on."""
    signals.worker_process_init.connect(_prepare, dispatch_uid=__name__)


def _prepare(**_: Any) -> None:
    log_releases()
    # A spawned process knows its worker's heartbeat only from the environment. A solo pool sends
    # the signal, too, but in the main process.
    if VARIABLE in os.environ and os.getpid() != _worker:
        release_retries()
        end_with_parent()


def note_worker() -> None:
    """Note that this is a worker's main process: those that it forks know that."""
    global _worker
    if _worker is None:
        os.register_at_fork(before=_note_fork)
    _worker = os.getpid()


def _note_fork() -> None:
    global _is_forked_by_main
    _is_forked_by_main = threading.current_thread() is threading.main_thread()


def end_with_parent() -> None:
    """Have the system kill this process when its parent exits (Linux only).

    This does nothing if a thread other than the main one has forked the process, as in a pool
    without an event loop. The system would kill the process when that thread ends (prctl(2),
    PR_SET_PDEATHSIG). The keeper ends such processes.
    """
    if _is_forked_by_main is False or not sys.platform.startswith("linux"):
        return
    # `getppid()` may name another process by now: the worker may have died since it forked.
    parent = _worker or os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)


def log_releases() -> None:
    """Log a task that releases its message in one line, in this process and those it forks."""
    logger = logging.getLogger(_TRACE)
    if _without_traceback not in logger.filters:
        logger.addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Remove the traceback of a release from a record; return whether to log the record."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, ReleaseMessage):
        return True
    if (why := _why_without_effect()) is None:
        return False
    record.exc_info, record.exc_text = None, None
    record.msg = (
        "sqs-heartbeat: task %(name)s[%(id)s] raised ReleaseMessage, whose delay has no effect "
        f"here: {why.replace('%', '%%')}"
    )
    return True


def _why_without_effect() -> str | None:
    """Return why we do not release the message of the running task, or None if we do."""
    if current_task and current_task.request.is_eager:
        return "the task was called eagerly"
    try:
        current_message()
        shared_table()
    except NoLease as none:
        return str(none.args[0])
    return None
