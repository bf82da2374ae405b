"""Runs workers on tasks with a countdown, and measures what the tasks cost them."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.eta_sending import send
from benchmarks.overhead.usage import Processes
from tests.support.proxy import FaultProxy
from tests.support.servers import MinistackServer
from tests.support.waiting import wait_until
from tests.support.workers import ProcessWorker, launch

#: The settings of each kind of worker. None means a worker without the flag.
KINDS: Mapping[str, Mapping[str, Any] | None] = {
    "stock": None,
    "held": {"sqs_heartbeat_hold_eta": 43_200},
    "parked": {},
}
#: The shortest time in which calls are counted while all tasks wait, in seconds.
SHORTEST_WAIT = 20
#: How often a condition is checked, and the longest wait for it, in seconds.
LOOKS_EVERY, PATIENCE = 0.5, 900.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """The figures of one kind of worker. Times are in seconds, memory is in MiB.

    Attributes:
        waiting: Calls while all tasks waited, by operation.
        waited: How long they were counted.
    """

    received: int
    received_in: float
    idle: float
    full: float
    until_all_wait: Mapping[str, int]
    waiting: Mapping[str, int]
    waited: float
    delays: Sequence[float]


class EtaBench:
    """One server, a proxy, and workers on fresh queues."""

    def __init__(self, server: MinistackServer, proxy: FaultProxy, folder: Path) -> None:
        self._server = server
        self._proxy = proxy
        self._folder = folder

    def run(self, kind: str, *, tasks: int, countdown: int, spread: int, timeout: int) -> Result:
        """Send the tasks to one worker, and wait until all have run."""
        conf = KINDS[kind]
        name = f"q-{uuid.uuid4().hex[:12]}"
        attributes = {"VisibilityTimeout": str(timeout if conf is not None else 43_200)}
        client = self._server.client()
        url = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        with self._working(name, conf) as (worker, ledger):
            wait_until(lambda: self._calls()["ReceiveMessage"])
            idle, first = memory(worker), self._calls()
            begun = time.monotonic()
            send(client, url, tasks=tasks, countdown=countdown, spread=spread)
            latest = begun + countdown - SHORTEST_WAIT
            wait_until(lambda: self._received() >= tasks or time.monotonic() > latest, PATIENCE)
            received, received_at = self._received(), time.monotonic()
            # The cost of the last receives does not count as waiting.
            time.sleep(2)
            before, since = self._calls(), time.monotonic()
            time.sleep(max(1.0, begun + countdown - 2 - since))
            waiting, waited = self._calls() - before, time.monotonic() - since
            full = memory(worker)
            wait_until(lambda: self._is_over(ledger, client, url, tasks), PATIENCE)
            delays = [float(line) for line in ledger.read_text().split()]
        return Result(
            received=received,
            received_in=received_at - begun,
            idle=idle,
            full=full,
            until_all_wait=before - first,
            waiting=waiting,
            waited=waited,
            delays=delays,
        )

    @contextmanager
    def _working(
        self, name: str, conf: Mapping[str, Any] | None
    ) -> Iterator[tuple[ProcessWorker, Path]]:
        ledger = self._folder / f"{name}.ledger"
        ledger.touch()
        self._proxy.forget()
        flag = [] if conf is None else ["--heartbeat-sqs"]
        worker = launch(
            name,
            app="benchmarks.eta_tasks",
            args=["-Q", name, "-c", "2", "-l", "WARNING", *flag],
            env={
                "CELERY_BROKER_URL": self._proxy.broker_url,
                "BENCH_CONF": json.dumps(conf or {}),
                "BENCH_LEDGER": str(ledger),
            },
            log_dir=self._folder,
            fresh=True,
        )
        try:
            yield worker, ledger
        finally:
            worker.teardown()

    def _calls(self) -> Counter[str]:
        return Counter(call.operation for call in self._proxy.calls())

    def _received(self) -> int:
        time.sleep(LOOKS_EVERY)
        calls = self._proxy.calls("ReceiveMessage")
        ids = (m["MessageId"] for call in calls for m in (call.answer or {}).get("Messages", ()))
        return len(set(ids))

    def _is_over(self, ledger: Path, client: Any, url: str, tasks: int) -> bool:
        time.sleep(LOOKS_EVERY)
        if len(ledger.read_text().split()) < tasks:
            return False
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return not any(int(counts[each]) for each in names)


def memory(worker: ProcessWorker) -> float:
    """Return the memory of a worker's processes, in MiB."""
    memory = Processes(worker.pid).memory()
    return memory.worker + memory.keeper
