"""The calls of a worker whose queue is empty."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.endless.server import Counts, EndlessServer
from benchmarks.endless.tasks import TRANSPORT
from benchmarks.endless.working import NOTHING, Kind, Setup, working
from benchmarks.frame.part import Table, digits

#: How long a poll of an empty queue waits, in seconds. kombu's default is 10.
_WAIT_SECONDS = 1
_CONF = {"broker_transport_options": {**TRANSPORT, "wait_time_seconds": _WAIT_SECONDS}}


def measure_idle(server: EndlessServer, seconds: float, folder: Path) -> Table:
    """Measure both kinds of workers, at the same time because they do hardly anything."""
    stock, ours = (server.queue(NOTHING) for _ in Kind)
    with (
        working(server, stock, Setup(kind=Kind.STOCK, conf=_CONF), folder),
        working(server, ours, Setup(kind=Kind.OURS, conf=_CONF), folder),
    ):
        stock.forget()
        ours.forget()
        time.sleep(seconds)
        counts = {Kind.STOCK: stock.counts(events=True), Kind.OURS: ours.counts(events=True)}
    rows = [
        [kind.value, digits(_polls_per_minute(each)), str(_other_calls(each))]
        for kind, each in counts.items()
    ]
    title = f"Calls of an idle worker, long polls of {_WAIT_SECONDS} s"
    return Table(title, ("", "receives a minute", f"other calls in {seconds:g} s"), rows)


def _polls_per_minute(counts: Counts) -> float:
    """Return the rate from the first answered poll to the last; 0 if there were not two."""
    times = [at for at, _ in counts.receives]
    return 60 * (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0


def _other_calls(counts: Counts) -> int:
    return sum(count for name, count in counts.calls.items() if name != "ReceiveMessage")
