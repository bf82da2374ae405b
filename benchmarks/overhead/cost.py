"""Has a worker run a number of tasks, and returns what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import NOTHING, Setup, working
from benchmarks.overhead.usage import Usage
from tests.support.waiting import wait_until

#: More than the tasks of any round. When its prefetch count is reached, a stock worker only waits.
#: (Celery takes a multiplier of 0 on its command line for none.)
UNLIMITED = 5_000


@dataclass(frozen=True, slots=True)
class Cost:
    """One round of one worker.

    Attributes:
        tasks_per_second: From the first receive to the last delete.
        start: The use of the worker before it received anything.
    """

    tasks: int
    tasks_per_second: float
    start: Usage
    end: Usage

    @property
    def consumer_us(self) -> float:
        """CPU of the consumer's thread, in microseconds a task."""
        return 1e6 * (self.end.consumer_cpu - self.start.consumer_cpu) / self.tasks

    @property
    def processes_us(self) -> float:
        """CPU of the worker and its keeper, in microseconds a task."""
        return self._worker_us + self._keeper_us

    @property
    def memory(self) -> float:
        """Memory of all processes, in MiB."""
        return self.end.worker_memory + self.end.keeper_memory

    @property
    def figures(self) -> Mapping[str, float]:
        """All figures, by name and unit."""
        return {
            "tasks/s": self.tasks_per_second,
            "CPU a task, consumer's thread, µs": self.consumer_us,
            "CPU a task, worker, µs": self._worker_us,
            "CPU a task, keeper, µs": self._keeper_us,
            "CPU a task, both, µs": self.processes_us,
            "memory, worker, MiB": self.end.worker_memory,
            "memory, keeper, MiB": self.end.keeper_memory,
            "memory, both, MiB": self.memory,
            "CPU to start, worker, s": self.start.worker_cpu,
            "CPU to start, keeper, s": self.start.keeper_cpu,
        }

    @property
    def _worker_us(self) -> float:
        return 1e6 * (self.end.worker_cpu - self.start.worker_cpu) / self.tasks

    @property
    def _keeper_us(self) -> float:
        return 1e6 * (self.end.keeper_cpu - self.start.keeper_cpu) / self.tasks


def cost_of(
    server: EndlessServer, setup: Setup, folder: Path, *, tasks: int, latency: float
) -> Cost:
    """Run one worker until it has deleted that many messages.

    Args:
        latency: Seconds that each call takes.
    """
    queue = server.queue(NOTHING)
    with working(server, queue, setup, folder) as worker:
        queue.set_latency(latency)
        start = Usage.of(worker.pid)
        queue.fill(count=tasks)
        wait_until(lambda: queue.counts().deleted >= tasks, tell=worker.logs)
        end = Usage.of(worker.pid)
        counts = queue.counts(events=True)
    begun = next(at for at, count in counts.receives if count)
    ended, _ = counts.deletes[-1]
    return Cost(tasks, tasks / (ended - begun), start, end)
