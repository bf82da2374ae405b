"""How long a message waits from its send to the start of its task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.endless.server import Counts, EndlessServer
from benchmarks.endless.tasks import START
from benchmarks.endless.template import SENT
from benchmarks.endless.working import TIMED, Kind, Setup, all_working, starts_of
from benchmarks.frame.part import digits
from benchmarks.throughput.windows import percentile
from tests.support.waiting import wait_until

#: The pace and the time of a call, in seconds. With this prefetch multiplier, a stock worker can do
#: twice as much.
_EVERY_SECONDS, _LATENCY, _PREFETCH = 0.04, 0.01, 50
#: How long messages arrive before they count, in seconds.
_WARM_SECONDS = 1.0


def measure_starts(server: EndlessServer, seconds: float, folder: Path) -> str:
    """Measure both kinds of workers, at the same time because they mostly wait.

    Return what was found, for the page.
    """
    queues = {kind: server.queue(TIMED, [SENT]) for kind in Kind}
    setups = {queue: Setup(kind=kind, prefetch=_PREFETCH) for kind, queue in queues.items()}
    with all_working(server, setups, folder):
        for queue in setups:
            queue.set_latency(_LATENCY)
            queue.fill(every=_EVERY_SECONDS)
        time.sleep(_WARM_SECONDS)
        begin = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        for queue in setups:
            queue.fill()
        wait_until(lambda: all(_is_done(queue.counts()) for queue in setups))
    medians, others = [], []
    for kind, queue in queues.items():
        waits = [1000 * each for each in _waits(starts_of(queue, folder), begin, end)]
        median, p99 = (digits(percentile(waits, share)) for share in (0.5, 0.99))
        medians.append(f"{median} ms ({kind.value})")
        others.append(f"{p99} ms")
    return (
        f"With a message each {_EVERY_SECONDS * 1000:g} ms and {_LATENCY * 1000:g} ms a call, a "
        f"task of a prefork worker starts {' or '.join(medians)} after its send in the median, and "
        f"{' or '.join(others)} at the 99th percentile."
    )


def _waits(starts: Path, begin: float, end: float) -> Sequence[float]:
    """Return the seconds from send to start of each task that was sent in a window."""
    content = starts.read_bytes()
    return [started - sent for sent, started in START.iter_unpack(content) if begin <= sent < end]


def _is_done(counts: Counts) -> bool:
    return counts.visible == counts.in_flight == 0
