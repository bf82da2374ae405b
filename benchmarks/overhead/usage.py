"""CPU and memory of a worker's processes."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

#: What identifies the keeper's process among the worker's processes.
_KEEPER = "celery_sqs_heartbeat.keeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The use of a worker's processes so far: CPU in seconds, memory in MiB.

    Memory is the proportional set size (PSS), so pages that a pool's processes share count once.

    Attributes:
        consumer_cpu: CPU of the main process's first thread, which receives and acks.
        worker_cpu: CPU of the main process and its pool.
    """

    consumer_cpu: float
    worker_cpu: float
    keeper_cpu: float
    worker_memory: float
    keeper_memory: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Return the use of a worker, its pool and its keeper.

        Args:
            pid: The worker's main process.
        """
        main = psutil.Process(pid)
        cpu, memory = [0.0, 0.0], [0.0, 0.0]
        for process in (main, *main.children(recursive=True)):
            index = int(_KEEPER in process.cmdline())
            times = process.cpu_times()
            cpu[index] += times.user + times.system
            memory[index] += process.memory_full_info().pss / 2**20
        first = next(each for each in main.threads() if each.id == pid)
        return cls(
            consumer_cpu=first.user_time + first.system_time,
            worker_cpu=cpu[0],
            keeper_cpu=cpu[1],
            worker_memory=memory[0],
            keeper_memory=memory[1],
        )
