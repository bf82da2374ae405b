"""Has workers run tasks in turns, and returns what these cost each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endless.server import BenchQueue, EndlessServer
from benchmarks.endless.working import NOTHING, Setup, all_working
from benchmarks.overhead.cost import Cost
from benchmarks.overhead.usage import Cpu, Processes
from tests.support.waiting import wait_until
from tests.support.workers import ProcessWorker

#: Seconds between two looks at how far a turn is. In that time a worker runs about five tasks.
_PAUSE = 0.01

#: The costs of each round, by the worker's name.
Costs = Mapping[str, Sequence[Cost]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many tasks are run.

    Attributes:
        rounds: In each, every worker has its turn.
        tasks: The tasks of a turn. Its middle half is measured, because the first poll and the last
            ones would weigh more in a turn than they do in a worker with enough to do.
        warm_up: The tasks of each worker before the first round.
    """

    rounds: int
    tasks: int
    warm_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """How far a worker is in its turn.

    Attributes:
        now: In monotonic seconds.
        cpu: What it has taken since it started.
    """

    deleted: int
    now: float
    cpu: Cpu


class _Measured:
    """A worker that runs tasks when it has its turn."""

    def __init__(self, queue: BenchQueue, worker: ProcessWorker) -> None:
        self._queue = queue
        self._worker = worker
        self._processes = Processes(worker.pid)
        self._start = self._processes.cpu()

    def cost_of(self, tasks: int) -> Cost:
        """Have it receive, run and delete that many messages, and return what half of them cost."""
        queue = self._queue
        queue.forget()
        queue.fill(count=tasks)
        begin, end = (self._after(deletes) for deletes in (tasks // 4, 3 * tasks // 4))
        self._after(tasks)
        return Cost(
            tasks=end.deleted - begin.deleted,
            seconds=end.now - begin.now,
            cpu=end.cpu - begin.cpu,
            start=self._start,
            memory=self._processes.memory(),
        )

    def _after(self, deletes: int) -> _State:
        """Wait for a number of deletes, and return the state then."""
        wait_until(
            lambda: self._queue.counts().deleted >= deletes,
            tell=self._worker.logs,
            longest_pause=_PAUSE,
        )
        cpu = self._processes.cpu()
        counts = self._queue.counts()
        return _State(deleted=counts.deleted, now=counts.now, cpu=cpu)


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
