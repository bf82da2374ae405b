"""Makes the processes of a prefork pool exit with the worker's main process.

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

#: linux/prctl.h
_PR_SET_PDEATHSIG = 1

#: The process that forked this one, and whether its main thread did so. Both are None in a spawned
#: process, which has its own interpreter.
_parent: int | None = None
_is_forked_by_main: bool | None = None


def end_with_parent(**_: Any) -> None:
    """Have the system kill this process when its parent exits (Linux only).

    This does nothing if a thread other than the main one has forked the process, as in a pool
    without an event loop. The system would kill the process when that thread ends (prctl(2),
    PR_SET_PDEATHSIG). The keeper ends such processes.
    """
    if VARIABLE not in os.environ or not sys.platform.startswith("linux"):
        return
    if _is_forked_by_main is False:
        return
    # `getppid()` may name another process by now: the worker may have died since it forked.
    parent = _parent or os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)


def _note_fork() -> None:
    global _parent, _is_forked_by_main
    _parent = os.getpid()
    _is_forked_by_main = threading.current_thread() is threading.main_thread()


os.register_at_fork(before=_note_fork)


def end_pools_with_workers() -> None:
    """Call `end_with_parent` in every pool process that starts from now on."""
    signals.worker_process_init.connect(end_with_parent, dispatch_uid=__name__)
