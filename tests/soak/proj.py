"""The Celery app of the soak's workers; its tasks write down what they do."""

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
from celery_sqs_heartbeat.sqs import queues
from tests.acceptance.losing import LosesConnection
from tests.soak.gathering import Gathers

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
    """Have the kernel end this process with its parent, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


#: How soon a worker notices a changed queue, in seconds: within a soak, and often too late.
REFRESH_SECONDS = 10.0

if "SOAK_LEDGER" in os.environ:
    # A worker of the soak, and not the process of the tests, which imports this too.
    queues.REFRESH_SECONDS = REFRESH_SECONDS
    # That the processes of its pool end with it is for the product to do.
    end_with_parent()


def write(what: str, **more: Any) -> None:
    """Write a line of the ledger, in one call: a process that is killed leaves no half of one."""
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
    """Write down what a task does; return how often its message was received."""
    return note_of(what, request.id, request.properties["delivery_info"]["sqs_message"])


def note_of(what: str, key: str, message: Any) -> int:
    """Write down what is done with a message; return how often it was received."""
    count = int(message["Attributes"]["ApproximateReceiveCount"])
    write(what, key=key, message_id=message["MessageId"], count=count)
    return count


class WritesDisconnects(bootsteps.Step):
    """Writes down that the connection was lost, on purpose or not.

    Before Celery does anything of it: to flush its pool it may wait for half a minute, for a
    process that waits for it to read its results. And also where it does nothing of it, as it is
    to shut down (celery/worker/consumer/consumer.py, `Consumer.start`).
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


@signals.task_revoked.connect
def note_revoked(request: Any, expired: bool, **_: Any) -> None:
    """Write down that a task expired, or was stopped for its lost lease."""
    note("expire" if expired else "stop", request)


@app.task(bind=True)
def work(self: Task[Any, Any], seconds: float) -> None:
    note("start", self.request)
    time.sleep(seconds)
    note("end", self.request)


@app.task(bind=True, acks_late=False)
def early(self: Task[Any, Any], seconds: float) -> None:
    note("start", self.request)
    time.sleep(seconds)
    note("end", self.request)


@app.task(bind=True, rate_limit="2/s")
def limited(self: Task[Any, Any], seconds: float) -> None:
    note("start", self.request)
    time.sleep(seconds)
    note("end", self.request)


@app.task(bind=True, acks_on_failure_or_timeout=False)
def flaky(self: Task[Any, Any], seconds: float, times: int) -> None:
    """Fails on the first receives of its message."""
    count = note("start", self.request)
    time.sleep(seconds)
    if count <= times:
        note("fail", self.request)
        raise ValueError("as it should")
    note("end", self.request)


@app.task(bind=True, acks_on_failure_or_timeout=False)
def step(self: Task[Any, Any], seconds: float, times: int = 0) -> None:
    """A step of a message group, which may fail on the first receives of its message."""
    count = note("start", self.request)
    time.sleep(seconds)
    if count <= times:
        note("fail", self.request)
        raise ValueError("as it should")
    note("end", self.request)


class NotAnException(BaseException):
    """What libraries raise that are not to be caught."""


@app.task(bind=True, acks_on_failure_or_timeout=False)
def quits(self: Task[Any, Any], seconds: float, times: int) -> None:
    """Ends by what is no `Exception` on the first receives of its message."""
    count = note("start", self.request)
    time.sleep(seconds)
    if count <= times:
        note("fail", self.request)
        # The others would end a pool's process, too, and with it what it was given next.
        is_with_others = current_process().name == "MainProcess"
        ways = (SystemExit, KeyboardInterrupt, NotAnException)
        raise ways[count % 3]() if is_with_others else NotAnException
    note("end", self.request)


@app.task(bind=True)
def bad(self: Task[Any, Any], seconds: float) -> None:
    """Fails, and its message is acked all the same: Celery's default."""
    note("start", self.request)
    time.sleep(seconds)
    note("fail", self.request)
    raise ValueError("as it should")


@app.task(bind=True)
def requeue(self: Task[Any, Any], seconds: float, times: int) -> None:
    """Asks for another try on the first receives of its message."""
    count = note("start", self.request)
    time.sleep(seconds)
    if count <= times:
        note("reject", self.request)
        raise Reject("as it should", requeue=True)
    note("end", self.request)


@app.task(bind=True)
def refuse(self: Task[Any, Any], seconds: float) -> None:
    """Rejects its message, which kombu deletes in a queue without dead letters."""
    note("start", self.request)
    time.sleep(seconds)
    note("reject", self.request)
    raise Reject("as it should", requeue=False)


@app.task(bind=True, max_retries=3)
def again(self: Task[Any, Any], seconds: float, times: int) -> None:
    """Asks for retries, each a message of its own."""
    note("start", self.request)
    time.sleep(seconds)
    if self.request.retries >= times:
        note("end", self.request)
        return
    try:
        retry = self.retry(countdown=1, throw=False)
    except Reject:
        # What Celery makes of a retry that can't be sent.
        note("unsent", self.request)
        raise
    note("retry", self.request)
    raise retry


def work_together(requests: list[tuple[str, Any, float]], _: None) -> None:
    """Do the work of a batch: as much as the longest of it."""
    for key, message, _seconds in requests:
        note_of("start", key, message)
    time.sleep(max(seconds for _, _, seconds in requests))
    for key, message, _seconds in requests:
        note_of("end", key, message)


class GathersWork(Gathers):
    abstract = True
    work = staticmethod(work_together)


@app.task(base=GathersWork)
def together(seconds: float) -> None:
    """Never runs by itself."""
