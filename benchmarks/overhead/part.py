"""The part `overhead`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.frame.part import Findings, Part, Size
from benchmarks.overhead.tables import cost_table, memory_table, ratios_of
from benchmarks.overhead.variants import ALL, BATCHED, BLOCKING, STOCK, Costs, in_turns

_ABOUT = """\
What the heartbeat costs a worker that only receives messages, runs empty tasks and deletes the
messages. Four workers take turns on queues with the same number of messages. All use prefork, two
processes and unlimited prefetch:

- stock;
- inline: `--heartbeat-sqs` with `sqs_heartbeat_ack = "inline"`. It deletes as the stock worker
  does, so the difference is the cost of the leases;
- batched: `--heartbeat-sqs`, which deletes in batches in the keeper's process;
- batched, journal: the same with `sqs_heartbeat_journal`.

The targets: with inline acks at least 0.99 of the stock worker's tasks per second, and at most
50 µs a task more on the consumer's thread; with a journal at most 3 % fewer tasks per second."""

_NOTES = [
    "The consumer's thread is the main process's first thread. Its CPU is known to 10 ms for each "
    "round. Memory is the proportional set size of all processes after their tasks, in workers "
    "that imported Celery themselves, measured once.",
    "This does not show a worker whose tasks do something: the consumer's thread then waits most "
    "of the time. The worker, its keeper and the server share the cores of one machine. So tasks "
    "per second vary more between rounds than CPU does.",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How much is measured.

    Attributes:
        tasks: The tasks of a round by latency, in seconds. All workers run at the first one.
    """

    rounds: int
    tasks: Mapping[float, int]


_FULL = _Plan(rounds=3, tasks={0.0: 800, 0.01: 150})
_TINY = _Plan(rounds=1, tasks={0.0: 50})


def _measure(size: Size) -> Findings:
    plan = _FULL if size is Size.FULL else _TINY
    costs: dict[float, Costs] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EndlessServer(folder / "server.log") as server:
            measure = partial(in_turns, server, folder=folder)
            for latency, tasks in plan.tasks.items():
                names = BLOCKING if costs else ALL
                costs[latency] = measure(names, rounds=plan.rounds, tasks=tasks, latency=latency)
            fewest = min(plan.tasks.values())
            memory = measure((STOCK, BATCHED), rounds=1, tasks=fewest, latency=0.0, fresh=True)
    return Findings(
        tables=[
            *(cost_table(each, latency) for latency, each in costs.items()),
            memory_table(memory),
        ],
        ratios=ratios_of(costs, memory),
        notes=_NOTES,
    )


PART = Part("overhead", "Overhead", _ABOUT, _measure)
