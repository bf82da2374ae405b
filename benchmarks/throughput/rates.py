"""Measures a running worker at one latency."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.endless.server import BenchQueue
from benchmarks.throughput.windows import tasks_per_second

#: How long the answers of the former latency are waited for, beyond that latency, in seconds.
_SETTLE_SECONDS = 0.3
#: How much longer a window may become until it has two receives with messages, in seconds.
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Rate:
    """One window.

    Attributes:
        tasks_per_second: Messages deleted per second.
        calls: Calls per deleted message, by operation.
    """

    tasks_per_second: float
    calls: Mapping[str, float]


def measure(queue: BenchQueue, latency: float, seconds: float) -> Rate:
    """Change the latency, wait until it is in force, and return the rate of the next seconds.

    Raises:
        ValueError: The worker hardly receives.
    """
    queue.set_latency(latency)
    time.sleep(_SETTLE_SECONDS + latency)
    queue.forget()
    deadline = time.monotonic() + seconds + _PATIENCE
    time.sleep(seconds)
    while True:
        counts = queue.counts(events=True)
        received = [at for at, count in counts.receives if count]
        if len(received) > 1 or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    rate = tasks_per_second(counts.receives, counts.deletes)
    return Rate(rate, {name: count / counts.deleted for name, count in counts.calls.items()})
