"""How long a message waits from its send to the start of its task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.tasks import START
from benchmarks.endless.template import SENT
from benchmarks.endless.working import TIMED, Kind, Setup, starts_of, working
from benchmarks.frame.part import Table, digits
from benchmarks.throughput.windows import percentile

#: A message each 20 ms, and calls of 10 ms: less than what a stock worker can do with this
#: prefetch multiplier.
_EVERY_SECONDS, _LATENCY, _PREFETCH = 0.02, 0.01, 50
#: What the worker gets to be warm, and then to start what was sent last, in seconds.
_WARM_SECONDS, _LAST_SECONDS = 1.0, 0.5


def measure_starts(server: EndlessServer, seconds: float, folder: Path) -> Table:
    """Measure both kinds of workers, one after the other."""
    rows = []
    for kind in Kind:
        waits = [1000 * each for each in _waits(server, kind, seconds, folder)]
        shares = [digits(percentile(waits, share)) for share in (0.5, 0.99)]
        rows.append([kind.value, *shares, str(len(waits))])
    pace = f"a message each {_EVERY_SECONDS * 1000:g} ms, {_LATENCY * 1000:g} ms a call"
    return Table(
        f"From send to start, {pace}, prefork, prefetch {_PREFETCH}",
        ("", "median, ms", "p99, ms", "tasks"),
        rows,
    )


def _waits(server: EndlessServer, kind: Kind, seconds: float, folder: Path) -> Sequence[float]:
    """Return the seconds from send to start of each task that was sent in a window."""
    queue = server.queue(TIMED, [SENT])
    with working(server, queue, Setup(kind=kind, prefetch=_PREFETCH), folder):
        queue.set_latency(_LATENCY)
        queue.fill(every=_EVERY_SECONDS)
        time.sleep(_WARM_SECONDS)
        begin = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        time.sleep(_LAST_SECONDS)
    content = starts_of(queue, folder).read_bytes()
    return [started - sent for sent, started in START.iter_unpack(content) if begin <= sent < end]
