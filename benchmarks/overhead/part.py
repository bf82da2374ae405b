"""The part `overhead`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.frame.part import Findings, Part, Size
from benchmarks.overhead.tables import cost_table, memory_table, ratios_of
from benchmarks.overhead.turns import Pace, in_turns
from benchmarks.overhead.variants import ALL, OURS, STOCK, setups_of

_ABOUT = """\
What the heartbeat costs a worker that only receives messages, runs empty tasks and deletes the
messages, with prefork, two processes and unlimited prefetch. The targets: not slower than a
stock worker, and with `sqs_heartbeat_journal` at most 3 % fewer tasks per second."""

_NOTES = [
    "The consumer's thread is the main process's first thread. Memory is the proportional set "
    "size of all processes after their tasks, in workers that imported Celery themselves, "
    "measured once.",
    "If tasks do something, the consumer's thread waits most of the time. The worker, its keeper "
    "and the server share one machine, so tasks per second vary more between rounds than CPU "
    "does.",
]


_FULL = Pace(rounds=5, tasks=500, warm_up=50)
_TINY = Pace(rounds=1, tasks=50, warm_up=0)
#: For memory, and for the CPU of a start.
_ONCE = Pace(rounds=1, tasks=150, warm_up=0)


def _measure(size: Size) -> Findings:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EndlessServer(folder / "server.log") as server:
            pace = _FULL if size is Size.FULL else _TINY
            costs = in_turns(server, setups_of(ALL, folder), folder, pace, latency=0.0)
            fresh = setups_of((STOCK, OURS), folder, fresh=True)
            memory = in_turns(server, fresh, folder, _ONCE, latency=0.0)
    return Findings(
        tables=[cost_table(costs), memory_table(memory)],
        ratios=ratios_of(costs, memory),
        notes=_NOTES,
    )


PART = Part("overhead", "Overhead", _ABOUT, _measure)
