"""Waits for what must happen, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: How long what must happen may take, in seconds. Nothing is proved by a machine's speed.
PATIENCE = 120.0
#: The same for what runs on Spark, which takes minutes to start beside all other tests.
SPARK_PATIENCE = 1800.0
POLL_SECONDS = 0.02


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
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout} s: {tell()}")
        time.sleep(POLL_SECONDS)
