"""Has the processes of a prefork pool end with the worker's main process.

A main process that is killed leaves them behind: each runs its task to the end, and nothing takes
its ack any more. The keeper releases their messages once they are gone, so that each runs again at
once; so they go at once.
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

#: linux/prctl.h
_PR_SET_PDEATHSIG = 1

#: The process that forked this one, and whether by its main thread. None in an interpreter of its
#: own.
_parent: int | None = None
_is_forked_by_main: bool | None = None


def end_with_parent(**_: Any) -> None:
    """Have this process killed when its parent ends, where the system can (Linux).

    Not where another thread than the main one has forked it, as that of a pool without an event
    loop: the system would take that thread's end for the parent's (prctl(2), PR_SET_PDEATHSIG).
    The keeper ends such processes.
    """
    if VARIABLE not in os.environ or not sys.platform.startswith("linux"):
        return
    if _is_forked_by_main is False:
        return
    # Asked here and now, the system might name another: the worker may have died since it forked.
    parent = _parent or os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It ended before that.
        os.kill(os.getpid(), signal.SIGKILL)


def _note_fork() -> None:
    global _parent, _is_forked_by_main
    _parent = os.getpid()
    _is_forked_by_main = threading.current_thread() is threading.main_thread()


os.register_at_fork(before=_note_fork)


def end_pools_with_workers() -> None:
    """Have it so in every process of a pool that starts from now on."""
    signals.worker_process_init.connect(end_with_parent, dispatch_uid=__name__)
