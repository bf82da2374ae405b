"""The part `overhead`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.frame.part import Findings, Part, Size
from benchmarks.overhead.tables import cost_table, memory_table, ratios_of
from benchmarks.overhead.turns import Costs, Pace, in_turns
from benchmarks.overhead.variants import ALL, BATCHED, BLOCKING, STOCK, setups_of

_ABOUT = """\
What the heartbeat costs a worker that only receives messages, runs empty tasks and deletes the
messages. Four workers take turns: each gets the same number of messages, while the others wait.
All use prefork, two processes and unlimited prefetch:

- stock;
- inline: `--heartbeat-sqs` with `sqs_heartbeat_ack = "inline"`. It deletes each message by a
  blocking call, as the stock worker does;
- batched: `--heartbeat-sqs`, which deletes in batches in the keeper's process;
- batched, journal: the same with `sqs_heartbeat_journal`.

The targets: with inline acks at least 0.99 of the stock worker's tasks per second, and at most
50 µs a task more on the consumer's thread; with a journal at most 3 % fewer tasks per second."""

_NOTES = [
    "The consumer's thread is the main process's first thread. CPU times are the scheduler's, in "
    "nanoseconds. (Without `/proc/PID/schedstat`, that of the consumer's thread is known to "
    "10 ms for each turn.) Each worker has run some tasks before its first turn. Memory is the "
    "proportional set size of all processes after their tasks, in workers that imported Celery "
    "themselves, measured once.",
    "Inline acks save more CPU than the leases take: our deletes follow boto3's pattern ([what a "
    "call costs](internals/keeper.md#what-a-call-costs)). In boto3's retry modes `standard` and "
    "`adaptive` they do not, and the work for each lease remains: a record of it in the worker, "
    "its place in shared memory, and messages to the keeper's process. Measured so on 2026-11-26, "
    "inline reached 0.93 of the stock worker's tasks per second with calls of 0 ms and 0.97 with "
    "calls of 10 ms, and the consumer's thread took 57 and 344 µs a task more.",
    "This does not show a worker whose tasks do something: the consumer's thread then waits most "
    "of the time. The worker, its keeper and the server share the cores of one machine. So tasks "
    "per second vary more between rounds than CPU does.",
]


#: By latency, in seconds. All workers run at the first one, and those that delete by blocking calls
#: at each.
_FULL = {
    0.0: Pace(rounds=5, tasks=500, warm_up=50),
    0.01: Pace(rounds=5, tasks=300, warm_up=50),
}
_TINY = {0.0: Pace(rounds=1, tasks=50, warm_up=0)}
#: For memory, and for the CPU of a start.
_ONCE = Pace(rounds=1, tasks=150, warm_up=0)


def _measure(size: Size) -> Findings:
    costs: dict[float, Costs] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EndlessServer(folder / "server.log") as server:
            for latency, pace in (_FULL if size is Size.FULL else _TINY).items():
                setups = setups_of(BLOCKING if costs else ALL, folder)
                costs[latency] = in_turns(server, setups, folder, pace, latency=latency)
            fresh = setups_of((STOCK, BATCHED), folder, fresh=True)
            memory = in_turns(server, fresh, folder, _ONCE, latency=0.0)
    return Findings(
        tables=[
            *(cost_table(each, latency) for latency, each in costs.items()),
            memory_table(memory),
        ],
        ratios=ratios_of(costs, memory),
        notes=_NOTES,
    )


PART = Part("overhead", "Overhead", _ABOUT, _measure)
