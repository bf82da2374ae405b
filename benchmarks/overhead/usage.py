"""CPU and memory of a worker's processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psutil

from benchmarks.overhead.cpu import first_thread_seconds, process_seconds

#: What identifies the keeper's process among the worker's processes.
_KEEPER = "celery_sqs_heartbeat.keeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """CPU seconds of a worker's processes.

    Attributes:
        consumer: Those of the main process's first thread, which receives and acks.
        worker: Those of the main process and its pool.
    """

    consumer: float
    worker: float
    keeper: float

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(
            consumer=self.consumer - other.consumer,
            worker=self.worker - other.worker,
            keeper=self.keeper - other.keeper,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of a worker's processes in MiB, as proportional set size (PSS).

    So pages that a pool's processes share count once.
    """

    worker: float
    keeper: float


class Processes:
    """A worker's processes.

    Args:
        pid: The worker's main process, which has started its pool and its keeper.
    """

    def __init__(self, pid: int) -> None:
        main = psutil.Process(pid)
        processes = [main, *main.children(recursive=True)]
        self._pid = pid
        self._keeper = [each for each in processes if _KEEPER in each.cmdline()]
        self._worker = [each for each in processes if each not in self._keeper]

    def cpu(self) -> Cpu:
        """Return their CPU so far."""
        return Cpu(
            consumer=first_thread_seconds(self._pid),
            worker=_sum(self._worker, lambda each: process_seconds(each.pid)),
            keeper=_sum(self._keeper, lambda each: process_seconds(each.pid)),
        )

    def memory(self) -> Memory:
        """Return their memory now."""
        return Memory(worker=_sum(self._worker, _mebibytes), keeper=_sum(self._keeper, _mebibytes))


def _sum(processes: list[psutil.Process], of: Callable[[psutil.Process], float]) -> float:
    return sum(map(of, processes), 0.0)


def _mebibytes(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / 2**20
