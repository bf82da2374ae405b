"""An app whose tasks are numbered steps of groups on a FIFO queue, written down as they run."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from celery import Celery, Task, chord
from celery.exceptions import Reject, Retry

from celery_sqs_heartbeat import current_lease, install
from tests.acceptance.losing import LosesConnection
from tests.acceptance.scene import StartWorker
from tests.support.waiting import PATIENCE, wait_until
from tests.support.workers import ProcessWorker

MODULE = __name__


def wrap_retry() -> None:
    """Wrap `Task.retry`, as packages do that record what tasks do."""
    retry = Task.retry

    @functools.wraps(retry)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        return retry(*args, **kwargs)

    Task.retry = recorded


if "ORDERED_WRAP" in os.environ:
    wrap_retry()

app = install(Celery("ordered", broker=os.environ.get("CELERY_BROKER_URL")))
app.conf.update(
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1},
)
app.conf.update(json.loads(os.environ.get("ORDERED_CONF", "{}")))

if "PROJ_BREAK" in os.environ:
    app.steps["consumer"].add(LosesConnection)


class FailedOnce(Exception):
    """The error of a step that must fail the first time."""


@app.task(bind=True)
def step(self: Any, group: str, number: int, seconds: float, first: str = "") -> None:
    """Take a step.

    Args:
        seconds: How long it takes.
        first: What it does the first time: "fail", "reject", "retry" or another way to retry, see
            `_retry`, or nothing. "hold": it waits for `Orders.let_end`, each time.
    """
    _note(group, number, "start")
    time.sleep(seconds)
    if first == "hold":
        wait_until(_held(os.environ["ORDERED_LEDGER"], group, number).exists)
        first = ""
    if first and _is_first(group, number):
        _note(group, number, first)
        if first == "fail":
            raise FailedOnce(f"{group} {number}")
        if first == "reject":
            raise Reject("the first time", requeue=False)
        _retry(self, first, (group, number, seconds))
    if self.request.retries:
        _note(group, number, f"retries-{self.request.retries}")
        _note(group, number, f"in-{current_lease.group}")
    _note(group, number, "end")


def _retry(task: Any, how: str, args: tuple[str, int, float]) -> None:
    """Retry a task. If this returns, the task continues."""
    if how == "retry":
        raise task.retry(countdown=1)
    if how == "changed":
        raise task.retry(args=args, countdown=1)
    if how == "behind":
        raise task.retry(countdown=1, MessageGroupId=current_lease.group)
    if how == "asked":
        task.retry(countdown=1, throw=False)
        return
    with contextlib.suppress(Retry):
        task.retry(countdown=1)
    if how == "caught-and-failed":
        raise FailedOnce(*args)


@app.task(ignore_result=False)
def part(number: int) -> int:
    """Return a part of a chord's sum."""
    _note("chord", number, "end")
    return number


@app.task
def total(parts: Sequence[int]) -> None:
    """Note the sum of a chord's parts."""
    _note("chord", sum(parts), "total")


@app.task
def measure(group: str, number: int, seconds: float) -> None:
    """Note how deep the stack is."""
    _note(group, number, f"depth-{len(inspect.stack(0))}")
    _note(group, number, "end")


def _note(group: str, number: int, what: str) -> None:
    name, at = os.environ["ORDERED_NAME"], time.monotonic()
    line = f"{group} {number} {what} {name} {at}\n"
    with open(os.environ["ORDERED_LEDGER"], "a") as ledger:
        ledger.write(line)


def _held(ledger: str, group: str, number: int) -> Path:
    return Path(f"{ledger}.{group}.{number}.end")


def _is_first(group: str, number: int) -> bool:
    try:
        Path(f"{os.environ['ORDERED_LEDGER']}.{group}.{number}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the ledger. `at` in monotonic seconds."""

    group: str
    number: int
    what: str
    worker: str
    at: float


class Server(Protocol):
    """An SQS server."""

    @property
    def broker_url(self) -> str:
        """Its URL, for Celery."""

    def client(self) -> Any:
        """Return a boto3 client of it."""


@dataclass
class Orders:
    """A FIFO queue, its workers and what they have written down."""

    server: Server
    start: StartWorker
    ledger: Path
    attributes: Mapping[str, str]
    queue: str = "orders.fifo"

    def __post_init__(self) -> None:
        self.ledger.touch()
        self.client = self.server.client()
        created = self.client.create_queue(
            QueueName=self.queue, Attributes={"FifoQueue": "true", **self.attributes}
        )
        self.url = created["QueueUrl"]
        self.options = {
            "region": "us-east-1",
            "is_secure": False,
            "wait_time_seconds": 1,
            "predefined_queues": {self.queue: {"url": self.url}},
        }
        self._sender = Celery("sender", broker=self.server.broker_url)
        self._sender.conf.broker_transport_options = self.options

    def send(
        self,
        group: str,
        number: int,
        seconds: float = 0.02,
        *,
        task: str = "step",
        expires: datetime | None = None,
        retries: Any = 0,
        **options: Any,
    ) -> None:
        """Send a step, or another task of this module."""
        self._sender.send_task(
            f"{MODULE}.{task}",
            (group, number, seconds),
            options,
            queue=self.queue,
            expires=expires,
            retries=retries,
            MessageGroupId=group,
        )

    def send_chord(self, parts: int, results: str) -> None:
        """Send a chord of `part`s and their `total`, without a group. `results`: its backend."""
        app = self._sender
        app.conf.update(result_backend=results, task_default_queue=self.queue)
        header = [app.signature(f"{MODULE}.part", (number,)) for number in range(1, parts + 1)]
        chord(header, app=app)(app.signature(f"{MODULE}.total"))

    def with_dead_letters(self, receives: int) -> str:
        """Give the queue a redrive policy; return the URL of its dead letters."""
        client = self.client
        url: str = client.create_queue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})[
            "QueueUrl"
        ]
        arn = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": receives}
        client.set_queue_attributes(
            QueueUrl=self.url, Attributes={"RedrivePolicy": json.dumps(policy)}
        )
        return url

    def worker(self, name: str, *args: str, wrap: bool = False, **conf: Any) -> ProcessWorker:
        """Start a worker, and wait until it is ready.

        Args:
            wrap: Have another package wrap `Task.retry` first, see `wrap_retry`.
        """
        worker = self.start(
            MODULE,
            ["-Q", self.queue, "--heartbeat-sqs", *args],
            env={
                "CELERY_BROKER_URL": self.server.broker_url,
                "ORDERED_LEDGER": str(self.ledger),
                "ORDERED_NAME": name,
                "ORDERED_CONF": json.dumps(
                    {
                        "task_default_queue": self.queue,
                        "broker_transport_options": self.options,
                        **conf,
                    }
                ),
                "PROJ_BREAK": str(self.breaks(name)),
                **({"ORDERED_WRAP": "1"} if wrap else {}),
            },
        )
        worker.wait_for_log("ready.")
        return worker

    def let_end(self, group: str, number: int) -> None:
        """Let a step that holds end."""
        _held(str(self.ledger), group, number).touch()

    def two_workers(self, *args: str, **conf: Any) -> None:
        """Start two workers, as `worker` does."""
        for name in ("w1", "w2"):
            self.worker(name, *args, **conf)

    def breaks(self, name: str) -> Path:
        """Return the file that makes a worker lose its connection."""
        return self.ledger.with_name(f"{name}.break")

    def lines(self) -> list[Line]:
        """Return the lines of the ledger."""
        *lines, _ = self.ledger.read_text().split("\n")
        parts = (line.split(" ") for line in lines)
        return [
            Line(group, int(number), what, worker, float(at))
            for group, number, what, worker, at in parts
        ]

    def ends(self) -> dict[str, list[int]]:
        """Return the steps that have succeeded, by group, in their order."""
        ends: dict[str, list[int]] = {}
        for line in self.lines():
            if line.what == "end":
                ends.setdefault(line.group, []).append(line.number)
        return ends

    def wait_for_ends(self, count: int, timeout: float = PATIENCE) -> None:
        """Return once so many different steps have succeeded."""
        wait_until(
            lambda: sum(len(set(ends)) for ends in self.ends().values()) >= count,
            timeout,
            lambda: f"{self.ends()}",
        )

    def wait_for_lines(self, count: int) -> None:
        """Return once there are so many lines in the ledger."""
        wait_until(lambda: len(self.lines()) >= count)

    def counts(self) -> tuple[int, int]:
        """Return how many messages are visible and how many in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        visible, in_flight = (int(counts["Attributes"][name]) for name in names)
        return visible, in_flight

    def wait_until_empty(self) -> None:
        """Return once nothing is left in the queue."""
        wait_until(lambda: self.counts() == (0, 0))


def overlaps(lines: Iterable[Line]) -> list[str]:
    """Return which steps of a group ran out of the order of their numbers, or side by side.

    A step may run again. But none may begin before all earlier ones have succeeded.
    """
    done: dict[str, int] = {}
    faults = []
    for line in lines:
        if line.what == "start" and line.number > done.get(line.group, -1) + 1:
            faults.append(
                f"{line.group} {line.number} began when {done.get(line.group, -1)} was done"
            )
        if line.what == "end":
            done[line.group] = max(done.get(line.group, -1), line.number)
    return faults


def steps(groups: Sequence[str], each: int) -> list[tuple[str, int]]:
    """Return the steps of groups, in the order in which to send them."""
    return [(group, number) for number in range(each) for group in groups]
