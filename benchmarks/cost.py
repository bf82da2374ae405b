"""Measures the cost of the keeper, compared with a stock worker or with another checkout.

For each pool it shows tasks per second, CPU per task in the worker and in the keeper's process, the
memory of both (the proportional set size, so that pages shared by a pool count once), and the CPU
used before the first receive. The workers take turns. They run the same empty tasks from the same
server (ministack, behind a proxy that delays each call by the given latency).

    python -m benchmarks.cost --rounds 3
    python -m benchmarks.cost --pools prefork gevent --latencies 0 0.01
    python -m benchmarks.cost --beside ../other    # another checkout of this project

CPU is measured as CPU time, which a busy machine changes little. Of tasks per second only the ratio
is meaningful.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.finite import Bench, Result
from tests.support.proxy import FaultProxy
from tests.support.servers import MinistackServer
from tests.support.waiting import wait_until
from tests.support.workers import ROOT, ProcessWorker

POOLS = ("prefork", "threads", "solo", "gevent", "eventlet")
#: What identifies the keeper's process among the worker's processes.
_KEEPER = "celery_sqs_heartbeat.keeper"


@dataclass(frozen=True)
class Usage:
    """The use of a worker's processes: CPU in seconds, memory in MiB."""

    worker_cpu: float
    keeper_cpu: float
    worker_memory: float
    keeper_memory: float

    @classmethod
    def of(cls, worker: ProcessWorker) -> Usage:
        """Return the use of the worker, its pool and its keeper so far."""
        main = psutil.Process(worker.pid)
        cpu, memory = [0.0, 0.0], [0.0, 0.0]
        for process in (main, *main.children(recursive=True)):
            index = int(_KEEPER in process.cmdline())
            times = process.cpu_times()
            cpu[index] += times.user + times.system
            memory[index] += process.memory_full_info().pss / 2**20
        return cls(*cpu, *memory)


@dataclass(frozen=True)
class Cost:
    """One round of one kind of worker."""

    result: Result
    start: Usage
    end: Usage

    @property
    def figures(self) -> dict[str, float]:
        """The values of the table's rows."""
        tasks, start, end = self.result.tasks, self.start, self.end
        worker, keeper = end.worker_cpu - start.worker_cpu, end.keeper_cpu - start.keeper_cpu
        return {
            "tasks/s": self.result.rate,
            "CPU a task, worker, ms": 1000 * worker / tasks,
            "CPU a task, keeper, ms": 1000 * keeper / tasks,
            "CPU a task, both, ms": 1000 * (worker + keeper) / tasks,
            "memory, worker, MiB": end.worker_memory,
            "memory, keeper, MiB": end.keeper_memory,
            "memory, both, MiB": end.worker_memory + end.keeper_memory,
            "CPU at the start, worker, s": start.worker_cpu,
            "CPU at the start, keeper, s": start.keeper_cpu,
        }


class CostBench(Bench):
    """Rounds that also measure the worker's processes."""

    def cost(self, *args: str, tasks: int, flag: bool, checkout: Path) -> Cost:
        """Run one worker of a checkout on one queue of empty tasks until all are deleted."""
        with self.working(*args, tasks=tasks, flag=flag, cwd=checkout, fresh=True) as worker:
            wait_until(self.has_received)
            start = Usage.of(worker)
            result = self.measure(tasks)
            return Cost(result, start, Usage.of(worker))

    def has_received(self) -> bool:
        """Return whether the worker has sent its first receive."""
        return any(call.operation == "ReceiveMessage" for call in self.proxy.calls())


def main() -> int:
    """Run the benchmark and print a table for each pool and latency."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pools", nargs="+", default=POOLS, choices=POOLS)
    parser.add_argument("--latencies", type=float, nargs="+", default=[0.0, 0.010])
    parser.add_argument("--beside", type=Path, help="another checkout, instead of a stock worker")
    parser.add_argument("--multiplier", type=int, default=100, help="prefetch multiplier")
    parser.add_argument(
        "--tasks", type=int, nargs=2, metavar=("OTHER", "OURS"), help="tasks per round"
    )
    options = parser.parse_args()
    console = Console()
    with (
        tempfile.TemporaryDirectory() as folder,
        MinistackServer(Path(folder) / "ministack.log") as server,
    ):
        for latency in options.latencies:
            with FaultProxy(server.url, latency=latency) as proxy:
                bench = CostBench(server, proxy, Path(folder))
                for pool in options.pools:
                    theirs, ours = _compare(bench, pool, options)
                    title = f"{pool}, {latency * 1000:g} ms a call"
                    console.print(_table(title, theirs, ours, beside=bool(options.beside)))
    return 0


def _compare(
    bench: CostBench, pool: str, options: argparse.Namespace
) -> tuple[list[Cost], list[Cost]]:
    args = ("-P", pool, "--prefetch-multiplier", str(options.multiplier))
    args += () if pool == "solo" else ("-c", "2")
    other = options.beside.resolve() if options.beside else ROOT
    # A stock worker is slower.
    default = (2_000 if options.beside else 400, 2_000)
    other_tasks, our_tasks = options.tasks or default
    theirs, ours = [], []
    for _ in range(options.rounds):
        theirs.append(
            bench.cost(*args, tasks=other_tasks, flag=bool(options.beside), checkout=other)
        )
        ours.append(bench.cost(*args, tasks=our_tasks, flag=True, checkout=ROOT))
    return theirs, ours


def _table(title: str, theirs: Sequence[Cost], ours: Sequence[Cost], *, beside: bool) -> Table:
    table = Table(title=title)
    for column in ("", "other checkout" if beside else "stock", "--heartbeat-sqs", "ratio"):
        table.add_column(column, justify="right")
    for row in ours[0].figures:
        pairs = [(a.figures[row], b.figures[row]) for a, b in zip(theirs, ours, strict=True)]
        ratios = [b / a for a, b in pairs if a]
        table.add_row(
            row,
            f"{statistics.median(a for a, _ in pairs):.3g}",
            f"{statistics.median(b for _, b in pairs):.3g}",
            f"{statistics.median(ratios):.2f}" if ratios else "",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
