"""Prepares the processes of a prefork pool: they release retries, and exit with the main process.

If the main process is killed, its pool processes survive. Each would run its task to the end, and
nothing would take its ack. The keeper releases their messages only after they are gone. So they
exit at once, and the tasks can run again at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from typing import Any

from celery import signals

from celery_sqs_heartbeat.current.sharing import VARIABLE
from celery_sqs_heartbeat.worker.release_log import log_releases
from celery_sqs_heartbeat.worker.retrying import release_retries

#: linux/prctl.h
_PR_SET_PDEATHSIG = 1

#: The worker's main process, and whether its main thread forked this one. Both are None in a
#: spawned process, which has its own interpreter.
_worker: int | None = None
_is_forked_by_main: bool | None = None


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


def _note_fork() -> None:
    global _is_forked_by_main
    _is_forked_by_main = threading.current_thread() is threading.main_thread()


def note_worker() -> None:
    """Note that this is a worker's main process: those that it forks know that."""
    global _worker
    if _worker is None:
        os.register_at_fork(before=_note_fork)
    _worker = os.getpid()


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
