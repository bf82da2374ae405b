"""Runs the demo's work once, with one kind of worker, and returns the result."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from demo.ledger import Event, Execution, mean_delay, succeeded
from demo.proj import PARENT, archive, flaky
from demo.recording import LEDGER, note, read
from demo.server import EmbeddedSqs
from demo.worker import Worker, shut_down

#: The visibility timeout of the queue of long tasks, in seconds.
SHORT_TIMEOUT = 3
#: The same for the tasks that fail or are killed: one that production would have.
USUAL_TIMEOUT = 30
#: How long an archive takes: two visibility timeouts.
ARCHIVE_SECONDS = 6.0
PACKAGES = ("email", "asyncio", "json", "http", "xml", "logging")
#: The package that the killed worker archives, and how long that takes. The kill comes halfway.
KILLED = "unittest"
KILLED_SECONDS = 7.0
FLAKY = "flaky"
FAILURES = 1
TASKS = (*PACKAGES, FLAKY, KILLED)
#: The executions needed: each task once, and again after each failure and after the kill.
NEEDED = len(TASKS) + FAILURES + 1
#: The shortest time for which workers are watched: a duplicate may start after the last success.
WATCH_SECONDS = 26.0
#: When a phase is given up. Only a machine under heavy load takes this long.
LIMIT_SECONDS = 300.0
POLL_SECONDS = 0.1

#: Receives the executions so far, and the current step.
Watcher = Callable[[Sequence[Execution], str], None]


@dataclass(kw_only=True)
class Result:
    """The executions of the work, and the calls to SQS."""

    executions: Sequence[Execution]
    calls: Counter[str]


class _OutOfTime(Exception):
    """The limit was reached. A task that has not succeeded by then counts as lost."""


@dataclass(kw_only=True)
class Phase:
    """The work under one kind of worker, on its own queues.

    One worker with two processes gets more archives than it can run at once. Two more with one
    process each get the task that fails, and an archive during which its worker is killed. The
    other one is idle by then, so that the measured time is that of SQS, not the wait for a process.
    """

    name: str
    options: Sequence[str]
    sqs: EmbeddedSqs
    folder: Path
    watch: Watcher
    _workers: list[Worker] = field(default_factory=list)
    _ends_at: float = 0.0

    def run(self) -> Result:
        """Run the work and return the result.

        Raises:
            WorkerFailed: A worker did not start, or exited early.
        """
        for kind, timeout in (("steady", SHORT_TIMEOUT), ("rough", USUAL_TIMEOUT)):
            self.sqs.make_queue(self._queue(kind), visibility_timeout=timeout)
        self.sqs.take_calls()
        self._ends_at = time.monotonic() + LIMIT_SECONDS
        try:
            with suppress(_OutOfTime):
                self._work()
            shut_down(self._workers)
        finally:
            # Workers have their own sessions, so Ctrl-C does not reach them.
            for worker in self._workers:
                worker.kill()
        runs = read(self._ledger)
        self.watch(runs, "done")
        return Result(executions=runs, calls=self.sqs.take_calls())

    def _work(self) -> None:
        self._start("steady", 2)
        rough = [self._start("rough", 1) for _ in range(2)]
        self._until(lambda _: all(worker.is_ready() for worker in self._workers), "starting")
        watched_at = time.monotonic() + WATCH_SECONDS
        for package in PACKAGES:
            archive.apply_async((package, ARCHIVE_SECONDS), queue=self._queue("steady"))
        flaky.apply_async((FLAKY, FAILURES), queue=self._queue("rough"))
        self._until(_has_failed, "a task fails")
        archive.apply_async((KILLED, KILLED_SECONDS), queue=self._queue("rough"))
        self._until(_is_half_way, "archiving")
        group = [run.group for run in read(self._ledger) if run.task == KILLED][-1]
        note(self._ledger, Event.KILLED, group=group)
        next(worker for worker in rough if worker.group == group).kill()
        self._until(_is_redelivered, "worker killed")
        self._until(lambda runs: succeeded(runs) >= set(TASKS), "archiving")
        self._until(lambda _: time.monotonic() > watched_at, "any duplicates?")

    @property
    def _ledger(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def _queue(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    def _start(self, kind: str, processes: int) -> Worker:
        worker = Worker(
            f"{self._queue(kind)}-{len(self._workers)}",
            ["-Q", self._queue(kind), "-c", str(processes), *self.options],
            env={LEDGER: str(self._ledger), PARENT: str(os.getpid())},
            folder=self.folder,
        )
        self._workers.append(worker)
        return worker

    def _until(self, reached: Callable[[Sequence[Execution]], bool], doing: str) -> None:
        while True:
            runs = read(self._ledger)
            self.watch(runs, doing)
            if reached(runs):
                return
            if time.monotonic() > self._ends_at:
                raise _OutOfTime
            for worker in self._workers:
                worker.check()
            time.sleep(POLL_SECONDS)


def _has_failed(runs: Sequence[Execution]) -> bool:
    return any(run.task == FLAKY and run.end is Event.FAILED for run in runs)


def _is_half_way(runs: Sequence[Execution]) -> bool:
    half_way = time.time() - KILLED_SECONDS / 2
    return any(run.task == KILLED and run.started_at <= half_way for run in runs)


def _is_redelivered(runs: Sequence[Execution]) -> bool:
    # If this process was delayed, the task succeeded before the kill.
    return mean_delay(runs, Event.KILLED) is not None or KILLED in succeeded(runs)
