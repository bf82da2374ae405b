"""Waits for events that must happen, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

#: How long an expected event may take, in seconds. No test depends on a machine's speed.
PATIENCE = 120.0
#: The same for jobs on Spark, which takes minutes to start beside all other tests.
SPARK_PATIENCE = 1800.0
#: The pauses between two checks, in seconds. They grow, because many checks are calls to a server,
#: and the waiting process shares the machine with the processes that it waits for.
POLL_SECONDS, MOST_POLL_SECONDS = 0.02, 0.3
POLL_GROWTH = 1.2


def pauses() -> Iterator[None]:
    """Pause before each further check, longer each time."""
    seconds = POLL_SECONDS
    while True:
        time.sleep(seconds)
        seconds = min(seconds * POLL_GROWTH, MOST_POLL_SECONDS)
        yield


def wait_until(
    condition: Callable[[], Any],
    timeout: float = PATIENCE,
    tell: Callable[[], object] = lambda: "what was waited for did not happen",
) -> None:
    """Return once the condition holds.

    Args:
        tell: Returns the text of the error.

    Raises:
        TimeoutError: It does not hold within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    pause = pauses()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout} s: {tell()}")
        next(pause)
