"""The clock that measures leases."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

#: The clock that continues while the machine is suspended, by `sys.platform`. On macOS,
#: CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW both continue. Only the latter does not jump when the
#: time is set. `time.monotonic` uses `mach_absolute_time` there, which stops (macOS,
#: clock_gettime(3); Python, `time`). On Linux these clocks stop, and CLOCK_BOOTTIME continues
#: (clock_gettime(2)).
_SUSPENDED = {"darwin": "CLOCK_MONOTONIC_RAW"}
_SUSPENDED_ELSEWHERE = "CLOCK_BOOTTIME"


def choose_clock(platform: str) -> Callable[[], float]:
    """Return the clock that continues while the machine is suspended, else `time.monotonic`."""
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
    """Return seconds that never decrease, on one scale for all processes of the machine.

    Like SQS's time, they continue while the machine is suspended, if the system has a clock that
    does. Else they are those of `time.monotonic`.
    """
    return _read()
