"""Has workers run tasks in turns, and returns what these cost each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endless.server import BenchQueue, EndlessServer
from benchmarks.endless.working import NOTHING, Setup, all_working
from benchmarks.overhead.cost import Cost
from benchmarks.overhead.usage import Processes
from tests.support.waiting import wait_until
from tests.support.workers import ProcessWorker

#: The costs of each round, by the worker's name.
Costs = Mapping[str, Sequence[Cost]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many tasks are run.

    Attributes:
        rounds: In each, every worker has its turn.
        tasks: The tasks of a turn. When few are left, our worker polls more often than a stock one,
            so a turn must not be short.
        warm_up: The tasks of each worker before the first round.
    """

    rounds: int
    tasks: int
    warm_up: int


class _Measured:
    """A worker that runs tasks when it has its turn."""

    def __init__(self, queue: BenchQueue, worker: ProcessWorker) -> None:
        self._queue = queue
        self._worker = worker
        self._processes = Processes(worker.pid)
        self._start = self._processes.cpu()

    def cost_of(self, tasks: int) -> Cost:
        """Have it receive, run and delete that many messages, and return what that cost."""
        queue = self._queue
        queue.forget()
        before = self._processes.cpu()
        queue.fill(count=tasks)
        wait_until(lambda: queue.counts().deleted >= tasks, tell=self._worker.logs)
        cpu = self._processes.cpu() - before
        counts = queue.counts(events=True)
        begun = next(at for at, count in counts.receives if count)
        ended, _ = counts.deletes[-1]
        return Cost(
            tasks=tasks,
            seconds=ended - begun,
            cpu=cpu,
            start=self._start,
            memory=self._processes.memory(),
        )


def in_turns(
    server: EndlessServer, setups: Mapping[str, Setup], folder: Path, pace: Pace, *, latency: float
) -> Costs:
    """Run all workers, and give them messages in turns. All but one only wait.

    Args:
        latency: Seconds that each call takes.
    """
    queues = {name: server.queue(NOTHING) for name in setups}
    started = all_working(server, {queues[name]: setups[name] for name in setups}, folder)
    costs: dict[str, list[Cost]] = defaultdict(list)
    with started as processes:
        workers = {
            name: _Measured(queue, process)
            for (name, queue), process in zip(queues.items(), processes, strict=True)
        }
        for queue in queues.values():
            queue.set_latency(latency)
        if pace.warm_up:
            for worker in workers.values():
                worker.cost_of(pace.warm_up)
        for _ in range(pace.rounds):
            for name, worker in workers.items():
                costs[name].append(worker.cost_of(pace.tasks))
    return costs
