"""Compares tasks per second of a stock worker and of ours, when each SQS call takes 10 ms.

Ours runs twice: without a journal, and with its journal, status page and metrics.

A stock worker deletes each message by a blocking call on its event loop. Ours deletes in
batches beside it. Both run the same empty tasks from the same server (ministack, behind a
proxy that delays each call by the given latency). Rounds alternate, so that a noisy machine
disturbs both equally. Only the ratio is meaningful.

    python -m benchmarks.finite --rounds 3
    python -m benchmarks.finite --multiplier 4 --tasks 40 1000

With a small prefetch multiplier a stock worker waits most of the time. When its prefetch is
full, kombu sleeps for a whole polling interval (1 s), even if messages are acked meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from celery import Celery
from rich.console import Console
from rich.table import Table

from celery_sqs_heartbeat import install
from tests.support.proxy import FaultProxy
from tests.support.servers import MinistackServer
from tests.support.workers import ROOT, ProcessWorker, launch

#: The tasks of one round: some seconds of work for each kind of worker.
STOCK_TASKS, OUR_TASKS = 400, 4_000
#: The lowest ratio of our tasks per second to those of a stock worker.
TARGET = 5.0

TRANSPORT = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}

app = install(Celery("throughput", broker=os.environ.get("CELERY_BROKER_URL")))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options=TRANSPORT,
)
app.conf.update(json.loads(os.environ.get("BENCH_CONF", "{}")))


@app.task
def nothing() -> None:
    """Do nothing, so that only receiving and deleting is measured."""


@dataclass(frozen=True)
class Result:
    """One round. `calls` counts SQS calls by operation."""

    tasks: int
    seconds: float
    calls: Mapping[str, int]

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return self.tasks / self.seconds


class Bench:
    """One server, one proxy with latency, and rounds of work on fresh queues."""

    def __init__(self, server: MinistackServer, proxy: FaultProxy, folder: Path) -> None:
        self.server = server
        self.proxy = proxy
        self.folder = folder

    def watched(self) -> dict[str, str]:
        """Return the settings for a journal and a status page."""
        journal = str(self.folder / f"journal-{uuid.uuid4().hex[:12]}")
        return {"sqs_heartbeat_journal": journal, "sqs_heartbeat_status": "127.0.0.1:0"}

    def round(
        self, *args: str, tasks: int, flag: bool, conf: Mapping[str, str] | None = None
    ) -> Result:
        """Run one worker on one queue of empty tasks until all are deleted."""
        with self.working(*args, tasks=tasks, flag=flag, conf=conf):
            return self.measure(tasks)

    @contextmanager
    def working(
        self,
        *args: str,
        tasks: int,
        flag: bool,
        conf: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        fresh: bool = False,
    ) -> Iterator[ProcessWorker]:
        """Run a worker on a queue of empty tasks during a `with` block."""
        name = f"q-{uuid.uuid4().hex[:12]}"
        url = self.server.client().create_queue(QueueName=name)["QueueUrl"]
        sender = Celery("sender", broker=self.server.broker_url)
        sender.conf.broker_transport_options = {
            **TRANSPORT,
            "predefined_queues": {name: {"url": url}},
        }
        for _ in range(tasks):
            sender.send_task("benchmarks.finite.nothing", queue=name, routing_key=name)
        self.proxy.forget()
        worker = launch(
            name,
            app="benchmarks.finite",
            args=["-Q", name, *(["--heartbeat-sqs"] if flag else []), "-l", "WARNING", *args],
            env={
                "CELERY_BROKER_URL": self.proxy.broker_url,
                "BENCH_CONF": json.dumps(conf or {}),
            },
            log_dir=self.folder,
            cwd=cwd,
            fresh=fresh,
        )
        try:
            yield worker
        finally:
            worker.teardown()

    def measure(self, tasks: int) -> Result:
        """Wait until the messages of that many tasks are deleted, and return the time."""
        deleted: list[float] = []
        deadline = time.monotonic() + 300
        while len(deleted) < tasks:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(deleted)} of {tasks} tasks in five minutes")
            time.sleep(0.2)
            calls = [c for c in self.proxy.calls() if c.answered_at is not None]
            deleted = [
                float(c.answered_at or 0)
                for c in calls
                if c.operation.startswith("DeleteMessage") and c.status == 200
                for _ in c.entries or [None]
            ]
        started = min(c.started_at for c in calls if c.operation == "ReceiveMessage")
        return Result(tasks, max(deleted) - started, Counter(c.operation for c in calls))


def main() -> int:
    """Run the benchmark and print its table. Return 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.010, help="seconds per call")
    parser.add_argument("--pool", default="prefork", choices=["prefork", "threads"])
    parser.add_argument("--multiplier", type=int, default=100, help="prefetch multiplier")
    parser.add_argument(
        "--tasks", type=int, nargs=2, default=[STOCK_TASKS, OUR_TASKS], metavar=("STOCK", "OURS")
    )
    options = parser.parse_args()
    stock_tasks, our_tasks = options.tasks
    console = Console()
    worker = ("-c", "2", "-P", options.pool, "--prefetch-multiplier", str(options.multiplier))
    stock: list[Result] = []
    ours: list[Result] = []
    watched: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ministack.log"
        with (
            MinistackServer(log) as server,
            FaultProxy(server.url, latency=options.latency) as proxy,
        ):
            bench = Bench(server, proxy, Path(folder))
            for number in range(options.rounds):
                stock.append(bench.round(*worker, tasks=stock_tasks, flag=False))
                ours.append(bench.round(*worker, tasks=our_tasks, flag=True))
                watched.append(
                    bench.round(*worker, tasks=our_tasks, flag=True, conf=bench.watched())
                )
                console.print(
                    f"round {number + 1}: stock {stock[-1].rate:.0f} tasks/s, "
                    f"--heartbeat-sqs {ours[-1].rate:.0f}, watched {watched[-1].rate:.0f}"
                )
    ratio, kept = _ratio(ours, stock), _ratio(watched, ours)
    console.print(_table({"stock": stock, "ours": ours, "watched": watched}, options))
    console.print(f"ratio (median of {options.rounds} rounds): {ratio:.1f}; target {TARGET:g}")
    console.print(f"with journal, status page and metrics: {kept:.2f} of that rate")
    return 0 if ratio >= TARGET else 1


def _ratio(those: list[Result], these: list[Result]) -> float:
    return statistics.median(a.rate / b.rate for a, b in zip(those, these, strict=True))


def _table(rounds: Mapping[str, list[Result]], options: argparse.Namespace) -> Table:
    title = f"{options.latency * 1000:g} ms a call, -c 2 -P {options.pool}"
    table = Table(title=f"{title}, prefetch multiplier {options.multiplier}")
    for column in ("", *rounds):
        table.add_column(column, justify="right")
    kinds = rounds.values()
    rates = [statistics.median(result.rate for result in results) for results in kinds]
    table.add_row("tasks/s", *(f"{rate:.0f}" for rate in rates))
    for operation in ("ReceiveMessage", "DeleteMessage", "DeleteMessageBatch"):
        per_task = [
            sum(r.calls.get(operation, 0) for r in results) / sum(r.tasks for r in results)
            for results in kinds
        ]
        table.add_row(f"{operation} a task", *(f"{calls:.2f}" for calls in per_task))
    return table


if __name__ == "__main__":
    sys.exit(main())
