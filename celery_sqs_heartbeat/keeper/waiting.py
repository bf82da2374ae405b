"""Waits for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How often a wait looks whether there is an answer, in seconds.
_POLL_SECONDS = 0.005


def wait_for(look: Callable[[], bool | None], timeout: float) -> bool:
    """Return the first answer that is not None; False after `timeout` seconds without one.

    Not on a lock: a greenlet that waits must let others run.

    Args:
        look: Is called at least once, and every few milliseconds.
    """
    deadline = time.monotonic() + timeout
    while (answer := look()) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return answer
