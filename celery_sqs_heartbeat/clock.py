"""The clock that leases are kept by."""

from __future__ import annotations

import time


def _boot_clock() -> int | None:
    """Return the clock that counts while the machine sleeps, where there is one."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is not None:
        try:
            time.clock_gettime(clock)
        except OSError:
            return None
    return clock


_CLOCK = _boot_clock()


def now() -> float:
    """Return seconds that never go back, the same in every process of the machine.

    Of `CLOCK_BOOTTIME` where there is one, which goes on while the machine is suspended,
    as SQS does; else of `time.monotonic`.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
