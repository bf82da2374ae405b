"""Tasks that manipulate processes, for tests of processes that die or stall."""

from __future__ import annotations

import ctypes
import os
import signal

from tests.acceptance.proj import app, note, wait_to_end

MODULE = __name__
#: Sends a task by its name here.
PREFIX = "tests.acceptance.proj."
#: linux/prctl.h
_PR_SET_PDEATHSIG = 1


@app.task(name=f"{PREFIX}leave_daemon")
def leave_daemon(key: str) -> None:
    """Leave a daemon behind, with all descriptors of this process, and run until it may end."""
    note("start", key)
    if os.fork() == 0:
        os.setsid()
        note("daemon", key)
        while True:
            signal.pause()
    wait_to_end(key)
    note("end", key)


@app.task(name=f"{PREFIX}outlive")
def outlive(key: str) -> None:
    """Run until it may end, even without the main process, as on systems that do not end it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
    note("start", key)
    wait_to_end(key)
    note("end", key)


@app.task(name=f"{PREFIX}hold_python")
def hold_python(key: str, seconds: int) -> None:
    """Let no other thread run any Python for so long, as one call of a C library may.

    It begins that call once the test lets it end.
    """
    note("start", key)
    wait_to_end(key)
    ctypes.PyDLL(None).sleep(seconds)
    note("end", key)
