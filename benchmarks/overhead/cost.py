"""What tasks cost a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.overhead.usage import Cpu, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What tasks cost one worker in one round.

    Attributes:
        seconds: From the first receive to the last delete.
        cpu: What the tasks took.
        start: What the worker took before its first message.
        memory: That after the round.
    """

    tasks: int
    seconds: float
    cpu: Cpu
    start: Cpu
    memory: Memory

    @property
    def tasks_per_second(self) -> float:
        """The rate."""
        return self.tasks / self.seconds

    @property
    def consumer_us(self) -> float:
        """CPU of the consumer's thread, in microseconds a task."""
        return self._per_task(self.cpu.consumer)

    @property
    def processes_us(self) -> float:
        """CPU of the worker and its keeper, in microseconds a task."""
        return self._per_task(self.cpu.worker + self.cpu.keeper)

    @property
    def mebibytes(self) -> float:
        """Memory of all processes, in MiB."""
        return self.memory.worker + self.memory.keeper

    @property
    def figures(self) -> Mapping[str, float]:
        """All figures, by name and unit."""
        return {
            "tasks/s": self.tasks_per_second,
            "CPU a task, consumer's thread, µs": self.consumer_us,
            "CPU a task, worker, µs": self._per_task(self.cpu.worker),
            "CPU a task, keeper, µs": self._per_task(self.cpu.keeper),
            "CPU a task, both, µs": self.processes_us,
            "memory, worker, MiB": self.memory.worker,
            "memory, keeper, MiB": self.memory.keeper,
            "memory, both, MiB": self.mebibytes,
            "CPU to start, worker, s": self.start.worker,
            "CPU to start, keeper, s": self.start.keeper,
        }

    def _per_task(self, seconds: float) -> float:
        return 1e6 * seconds / self.tasks
