"""Waits for what must happen, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

#: How long what must happen may take, in seconds. Nothing is proved by a machine's speed.
PATIENCE = 120.0
#: The same for what runs on Spark, which takes minutes to start beside all other tests.
SPARK_PATIENCE = 1800.0
#: How soon it looks again, in seconds: the longer it waits, the less often, as many a look is a
#: call to a server, and those who wait share the machine with those who are to act.
POLL_SECONDS, MOST_POLL_SECONDS = 0.02, 0.3
POLL_GROWTH = 1.2


def pauses() -> Iterator[None]:
    """Pause each time before another look, ever longer."""
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
        tell: Returns what to say when it does not.

    Raises:
        TimeoutError: It does not within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    pause = pauses()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout} s: {tell()}")
        next(pause)
