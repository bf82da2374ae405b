"""Waits for a result of another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Interval between two checks for an answer, in seconds.
_POLL_SECONDS = 0.005


def wait_for(look: Callable[[], bool | None], timeout: float) -> bool:
    """Return the first answer that is not None; False after `timeout` seconds without one.

    It polls instead of waiting on a lock, because a waiting greenlet must let others run.

    Args:
        look: Called at least once, and every few milliseconds.
    """
    deadline = time.monotonic() + timeout
    while (answer := look()) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return answer
