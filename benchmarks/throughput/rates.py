"""Measures a running worker at one latency."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.endless.server import BenchQueue
from benchmarks.throughput.windows import tasks_per_second
from tests.support.waiting import wait_until

#: How long a new latency is given to be in force everywhere, beyond two calls, in seconds.
_SETTLE_SECONDS = 0.1
#: How much longer a window may become until it has a whole cycle of receiving, in seconds.
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Rate:
    """One window.

    Attributes:
        tasks_per_second: Messages deleted per second.
        deleted: Messages deleted in the window.
        calls: Calls in the window, by operation.
    """

    tasks_per_second: float
    deleted: int
    calls: Mapping[str, int]


def measure(queue: BenchQueue, latency: float, seconds: float) -> Rate:
    """Have a worker run tasks at a latency, and return the rate of the next seconds.

    It continues until the queue has another source. The window becomes longer if the worker has not
    deleted a message by its end, or has received only once.

    Raises:
        ValueError: The worker hardly receives.
    """
    queue.set_latency(latency)
    queue.fill(is_endless=True)
    wait_until(lambda: queue.counts().deleted)
    time.sleep(_SETTLE_SECONDS + 2 * latency)
    queue.forget()
    deadline = time.monotonic() + seconds + _PATIENCE
    time.sleep(seconds)
    while True:
        counts = queue.counts(events=True)
        rate = tasks_per_second(counts.receives, counts.deletes)
        if rate:
            return Rate(rate, counts.deleted, counts.calls)
        if time.monotonic() > deadline:
            raise ValueError(f"no rate after {seconds + _PATIENCE:g} s: {counts.calls}")
        time.sleep(0.05)
