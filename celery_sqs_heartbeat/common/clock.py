"""The clock that leases are kept by."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

#: The clock that goes on while the machine is suspended, by `sys.platform`. macOS counts it in
#: CLOCK_MONOTONIC, and in CLOCK_MONOTONIC_RAW without jumps when the time is set; Python's
#: `time.monotonic` is `mach_absolute_time` there, which stands still (macOS, clock_gettime(3);
#: Python, `time`). On Linux these two stand still, and CLOCK_BOOTTIME goes on (clock_gettime(2)).
_SUSPENDED = {"darwin": "CLOCK_MONOTONIC_RAW"}
_SUSPENDED_ELSEWHERE = "CLOCK_BOOTTIME"


def choose_clock(platform: str) -> Callable[[], float]:
    """Return a platform's clock that goes on while the machine sleeps, where it has one."""
    clock: int | None = getattr(time, _SUSPENDED.get(platform, _SUSPENDED_ELSEWHERE), None)
    if clock is None:
        return time.monotonic
    try:
        time.clock_gettime(clock)
    except OSError:
        return time.monotonic
    return lambda: time.clock_gettime(clock)


_read = choose_clock(sys.platform)


def now() -> float:
    """Return seconds that never go back, the same in every process of the machine.

    They go on while the machine is suspended, as SQS does, where the system has such a clock;
    else they are those of `time.monotonic`.
    """
    return _read()
