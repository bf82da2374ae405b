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
from typing import Any

from celery import signals

from celery_sqs_heartbeat.current.sharing import VARIABLE

#: linux/prctl.h
_PR_SET_PDEATHSIG = 1


def end_with_parent(**_: Any) -> None:
    """Have this process killed when its parent ends, where the system can (Linux)."""
    if VARIABLE not in os.environ or not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It ended a moment ago.
        os.kill(os.getpid(), signal.SIGKILL)


def end_pools_with_workers() -> None:
    """Have it so in every process of a pool that starts from now on."""
    signals.worker_process_init.connect(end_with_parent, dispatch_uid=__name__)
