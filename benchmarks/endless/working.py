"""Runs a worker on a queue of the endless server."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.endless.server import BenchQueue, EndlessServer
from benchmarks.endless.tasks import CONF_VARIABLE, STARTS_VARIABLE
from tests.support.waiting import wait_until
from tests.support.workers import ROOT, ProcessWorker, launch

POOLS = ("prefork", "threads", "gevent")
NOTHING, TIMED = "benchmarks.endless.tasks.nothing", "benchmarks.endless.tasks.timed"


class Kind(enum.Enum):
    """Which worker is measured."""

    STOCK = "stock"
    OURS = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a worker is started.

    Attributes:
        prefetch: The prefetch multiplier. Two processes, threads or greenlets run tasks, so the
            prefetch count is twice as much.
        conf: Further settings of its app.
        checkout: The checkout of this project that it runs.
        fresh: Whether it imports Celery itself, rather than being forked from a process that did.
            Workers of another checkout, and those of green pools, always do.
    """

    kind: Kind
    pool: str = "prefork"
    prefetch: int = 4
    conf: Mapping[str, Any] = field(default_factory=dict)
    checkout: Path = ROOT
    fresh: bool = False

    @property
    def args(self) -> list[str]:
        """The arguments of `celery worker`."""
        flag = "--heartbeat-sqs" if self.kind is Kind.OURS else "--no-heartbeat-sqs"
        count = [] if self.pool == "solo" else ["-c", "2"]
        multiplier = ["--prefetch-multiplier", str(self.prefetch)]
        return ["-P", self.pool, *count, *multiplier, flag, "-l", "WARNING"]


@contextmanager
def working(
    server: EndlessServer, queue: BenchQueue, setup: Setup, folder: Path
) -> Iterator[ProcessWorker]:
    """Run a worker on a queue during a `with` block, which begins when it polls the queue.

    Args:
        folder: For its log, and for the times of `timed` tasks (`starts_of`).
    """
    with all_working(server, {queue: setup}, folder) as (worker,):
        yield worker


@contextmanager
def all_working(
    server: EndlessServer, setups: Mapping[BenchQueue, Setup], folder: Path
) -> Iterator[Sequence[ProcessWorker]]:
    """Run a worker on each queue during a `with` block. They start at the same time."""
    with ExitStack() as ends:
        workers = []
        for queue, setup in setups.items():
            worker = _start(server, queue, setup, folder)
            ends.callback(worker.teardown)
            workers.append(worker)
        for queue, worker in zip(setups, workers, strict=True):
            wait_until(partial(_is_polling, queue, worker), tell=worker.logs)
        yield workers


def _start(server: EndlessServer, queue: BenchQueue, setup: Setup, folder: Path) -> ProcessWorker:
    is_other = setup.checkout != ROOT
    return launch(
        queue.name,
        app="benchmarks.endless.tasks",
        args=["-Q", queue.name, *setup.args],
        env={
            "PYTHONPATH": str(setup.checkout),
            "CELERY_BROKER_URL": server.broker_url,
            CONF_VARIABLE: json.dumps(dict(setup.conf)),
            STARTS_VARIABLE: str(starts_of(queue, folder)),
        },
        log_dir=folder,
        cwd=_only_benchmarks(folder) if is_other else ROOT,
        fresh=setup.fresh or is_other,
    )


def starts_of(queue: BenchQueue, folder: Path) -> Path:
    """Return the file with the times of a queue's `timed` tasks."""
    return folder / f"{queue.name}.starts"


def _only_benchmarks(folder: Path) -> Path:
    """Return a folder from which these benchmarks can be imported, and nothing else.

    A worker finds the rest in its own checkout, which may be older than the benchmarks.
    """
    place = folder / "only-benchmarks"
    place.mkdir(exist_ok=True)
    link = place / "benchmarks"
    if not link.exists():
        link.symlink_to(ROOT / "benchmarks")
    return place


def _is_polling(queue: BenchQueue, worker: ProcessWorker) -> bool:
    if worker.process.exit_code is not None:
        raise RuntimeError(f"the worker ended; its log is\n{worker.logs()}")
    return "ReceiveMessage" in queue.counts().calls
