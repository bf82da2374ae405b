"""The Celery app of the soak's workers. Its tasks record what they do."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from typing import Any

from billiard import current_process
from celery import Celery, Task, bootsteps, signals
from celery.exceptions import Reject

from celery_sqs_heartbeat import install
from tests.acceptance.losing import LosesConnection

_PR_SET_PDEATHSIG = 1

app = install(Celery("soak", broker=os.environ.get("CELERY_BROKER_URL")))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)
app.conf.update(json.loads(os.environ.get("SOAK_CONF", "{}")))
if "PROJ_BREAK" in os.environ:
    app.steps["consumer"].add(LosesConnection)


def end_with_parent() -> None:
    """Make the kernel end this process with its parent, however the parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if "SOAK_LEDGER" in os.environ:
    # Only in a worker of the soak: the process of the tests imports this module, too.
    # The product must make the processes of the pool end with the worker.
    end_with_parent()


def write(what: str, **more: Any) -> None:
    """Write a line of the ledger in one call, so that a killed process leaves no partial line."""
    line = {
        "what": what,
        "at": time.monotonic(),
        "worker": os.environ["SOAK_WORKER"],
        "pid": os.getpid(),
        **more,
    }
    ledger = os.open(os.environ["SOAK_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, json.dumps(line).encode() + b"\n")
    os.close(ledger)


def note(what: str, request: Any) -> int:
    """Record what a task does. Return its message's receive count."""
    return note_of(what, request.id, request.properties["delivery_info"]["sqs_message"])


def note_of(what: str, key: str, message: Any) -> int:
    """Record what is done with a message. Return its receive count."""
    count = int(message["Attributes"]["ApproximateReceiveCount"])
    write(what, key=key, message_id=message["MessageId"], count=count)
    return count


class WritesDisconnects(bootsteps.Step):
    """Records that the connection was lost, on purpose or not.

    It does so before Celery reacts. To flush its pool, Celery may wait half a minute for a process
    that itself waits until its results are read. It also records a loss that Celery ignores because
    the worker is shutting down (celery/worker/consumer/consumer.py, `Consumer.start`).
    """

    def __init__(self, c: Any, **options: Any) -> None:
        super().__init__(c, **options)
        start = c.blueprint.start

        def start_and_write(parent: Any) -> None:
            try:
                start(parent)
            except (*c.connection_errors, *c.channel_errors):
                if c.connection:
                    write("disconnect")
                raise

        c.blueprint.start = start_and_write


app.steps["consumer"].add(WritesDisconnects)


@signals.task_received.connect
def note_arrival(request: Any, **_: Any) -> None:
    """Record that Celery got a message."""
    note_of("arrive", request.id, request.message.delivery_info["sqs_message"])


@signals.task_revoked.connect
def note_revoked(request: Any, expired: bool, **_: Any) -> None:
    """Record that a task expired, or was stopped because its lease was lost."""
    note("expire" if expired else "stop", request)


def begin(task: Task[Any, Any], seconds: float) -> int:
    """Record the start of a task, and sleep. Return its message's receive count."""
    count = note("start", task.request)
    time.sleep(seconds)
    return count


def succeed(task: Task[Any, Any], seconds: float) -> None:
    begin(task, seconds)
    note("end", task.request)


def fail_at_first(task: Task[Any, Any], seconds: float, times: int = 0) -> None:
    """Fail on the first receives of its message."""
    if begin(task, seconds) <= times:
        note("fail", task.request)
        raise ValueError("as it should")
    note("end", task.request)


for name, do, options in (
    ("work", succeed, {}),
    ("early", succeed, {"acks_late": False}),
    ("limited", succeed, {"rate_limit": "2/s"}),
    ("flaky", fail_at_first, {"acks_on_failure_or_timeout": False}),
    # A step of a message group.
    ("step", fail_at_first, {"acks_on_failure_or_timeout": False}),
):
    app.task(bind=True, name=f"{__name__}.{name}", **options)(do)


class NotAnException(BaseException):
    """Stands for exceptions of libraries that must not be caught."""


@app.task(bind=True, acks_on_failure_or_timeout=False)
def quits(self: Task[Any, Any], seconds: float, times: int) -> None:
    """Raises something that is not an `Exception` on the first receives of its message."""
    count = begin(self, seconds)
    if count <= times:
        note("fail", self.request)
        # The other two would also end a pool's process, and with it the next task assigned to it.
        is_with_others = current_process().name == "MainProcess"
        ways = (SystemExit, KeyboardInterrupt, NotAnException)
        raise ways[count % 3]() if is_with_others else NotAnException
    note("end", self.request)


@app.task(bind=True)
def bad(self: Task[Any, Any], seconds: float) -> None:
    """Fails, and its message is acked anyway: Celery's default."""
    begin(self, seconds)
    note("fail", self.request)
    raise ValueError("as it should")


@app.task(bind=True)
def requeue(self: Task[Any, Any], seconds: float, times: int) -> None:
    """Requests another try on the first receives of its message."""
    if begin(self, seconds) <= times:
        note("reject", self.request)
        raise Reject("as it should", requeue=True)
    note("end", self.request)


@app.task(bind=True)
def refuse(self: Task[Any, Any], seconds: float) -> None:
    """Rejects its message, which kombu deletes from a queue without dead letters."""
    begin(self, seconds)
    note("reject", self.request)
    raise Reject("as it should", requeue=False)


@app.task(bind=True, max_retries=3)
def again(self: Task[Any, Any], seconds: float, times: int) -> None:
    """Requests retries. Each retry is a new message."""
    begin(self, seconds)
    if self.request.retries >= times:
        note("end", self.request)
        return
    try:
        retry = self.retry(countdown=1, throw=False)
    except Reject:
        # Celery raises this if it cannot send the retry.
        note("unsent", self.request)
        raise
    note("retry", self.request)
    raise retry
