"""The calls of a worker whose queue is empty."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.endless.server import Counts, EndlessServer
from benchmarks.endless.tasks import TRANSPORT
from benchmarks.endless.working import NOTHING, Kind, Setup, all_working
from benchmarks.frame.part import digits

#: How long a poll of an empty queue waits, in seconds. kombu's default is 10.
_WAIT_SECONDS = 1
_CONF = {"broker_transport_options": {**TRANSPORT, "wait_time_seconds": _WAIT_SECONDS}}


def measure_idle(server: EndlessServer, seconds: float, folder: Path) -> str:
    """Measure both kinds of workers, at the same time because they do hardly anything.

    Return what was found, for the page.
    """
    queues = {kind: server.queue(NOTHING) for kind in Kind}
    setups = {queue: Setup(kind=kind, conf=_CONF) for kind, queue in queues.items()}
    with all_working(server, setups, folder):
        for queue in setups:
            queue.forget()
        time.sleep(seconds)
        counts = {kind: queue.counts(events=True) for kind, queue in queues.items()}
    found = (
        f"{digits(_polls_per_minute(each))} receives a minute and {_other_calls(each)} other calls "
        f"({kind.value})"
        for kind, each in counts.items()
    )
    return f"With long polls of {_WAIT_SECONDS} s, an idle worker makes {' or '.join(found)}."


def _polls_per_minute(counts: Counts) -> float:
    """Return the rate from the first answered poll to the last; 0 if there were not two."""
    times = [at for at, _ in counts.receives]
    return 60 * (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0


def _other_calls(counts: Counts) -> int:
    return sum(count for name, count in counts.calls.items() if name != "ReceiveMessage")
