"""CPU times of other processes, to the nanosecond."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import psutil

_LIBC = ctypes.CDLL(None)


def process_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, with all threads that it has or had.

    Raises:
        OSError: There is no such process.
    """
    clock = ctypes.c_int()
    if error := _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(error, os.strerror(error))
    return time.clock_gettime(clock.value)


def first_thread_seconds(pid: int) -> float:
    """Return the CPU seconds of a process's first thread.

    They are exact while it sleeps, and up to a tick old while it runs. A kernel without scheduler
    statistics knows only ticks, which are 10 ms.
    """
    try:
        nanoseconds = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except FileNotFoundError:
        nanoseconds = 0
    if nanoseconds:
        return nanoseconds / 1e9
    first = next(each for each in psutil.Process(pid).threads() if each.id == pid)
    return first.user_time + first.system_time
