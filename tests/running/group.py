"""Runs a command and adds up the CPU time of all processes that it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

#: From `linux/prctl.h`: orphans below this process become its children, so they are counted.
_PR_SET_CHILD_SUBREAPER = 36
#: How long the processes that a command leaves behind may take to end, in seconds. A JVM takes one
#: second of CPU for that, which may be minutes beside other groups.
LEFT_SECONDS = 600.0
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Ended:
    """How a command ended. `left` are the processes that it should have ended but did not."""

    exit_code: int
    seconds: float
    cpu_seconds: float
    left: Sequence[str]


def run_group(command: Sequence[str]) -> Ended:
    """Run a command, and wait until the processes that it leaves behind have ended.

    On Linux orphans count as well: Spark's JVM, the children of a killed worker.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    began = time.monotonic()
    process = subprocess.Popen(command)
    cpu, code = 0.0, None
    while code is None:
        pid, status, usage = os.wait4(-1, 0)
        cpu += usage.ru_utime + usage.ru_stime
        if pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    rest, left = _reap_rest()
    return Ended(code, seconds, cpu + rest, left)


def _reap_rest() -> tuple[float, list[str]]:
    """Return the CPU of the remaining processes, and the names of those that had to be killed."""
    cpu, left = 0.0, []
    deadline = time.monotonic() + LEFT_SECONDS
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
            cpu += usage.ru_utime + usage.ru_stime
            if pid:
                continue
            if time.monotonic() > deadline:
                left += [_kill(child) for child in psutil.Process().children()]
            time.sleep(POLL_SECONDS)
    return cpu, left


def _kill(process: psutil.Process) -> str:
    name = str(process.pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        name = f"{process.pid}, {' '.join(process.cmdline())[:200]}"
        process.send_signal(signal.SIGKILL)
    return name
