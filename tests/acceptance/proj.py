"""The Celery app that acceptance tests run; its tasks write down what they do."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from celery import Celery, Task, signals
from celery.exceptions import Reject, Retry

from celery_sqs_heartbeat import LeaseLost, ReleaseMessage, current_lease, install
from celery_sqs_heartbeat.observe import watched
from celery_sqs_heartbeat.signals import lease_capped, lease_lost
from tests.acceptance.losing import LosesConnection, lose_threads
from tests.support.stalls import StallWatch

app = install(Celery("proj", broker=os.environ.get("CELERY_BROKER_URL")))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1},
)
app.conf.update(json.loads(os.environ.get("PROJ_CONF", "{}")))

if "PROJ_PYTHON" in os.environ:
    # The interpreter that starts the keeper.
    sys.executable = os.environ["PROJ_PYTHON"]

if "PROJ_INSTRUMENT" in os.environ:
    # The oldest environment has none of these packages.
    from tests.acceptance.instrumented import instrument

    instrument(os.environ["PROJ_INSTRUMENT"], Path(os.environ["PROJ_REPORTED"]))

if "PROJ_DEAF" in os.environ:
    # For how long polls fail before a queue counts as deaf, in seconds.
    watched.DEAF_SECONDS = float(os.environ["PROJ_DEAF"])

if "PROJ_START_SECONDS" in os.environ:
    from celery_sqs_heartbeat.worker import shutdown

    shutdown._START_SECONDS = float(os.environ["PROJ_START_SECONDS"])

if "PROJ_KILL_LATE" in os.environ:
    from tests.support.insides import kill_late

    kill_late(float(os.environ["PROJ_KILL_LATE"]))

if "PROJ_BREAK" in os.environ:
    app.steps["consumer"].add(LosesConnection)


def note(what: str, key: str) -> None:
    line = json.dumps({"what": what, "key": key, "at": time.monotonic(), "pid": os.getpid()})
    with open(os.environ["PROJ_LEDGER"], "a") as ledger:
        ledger.write(line + "\n")


def starts(key: str) -> int:
    """Return how often a task has written down its start, as far as is known."""
    with open(os.environ["PROJ_LEDGER"]) as ledger:
        notes = [json.loads(line) for line in ledger]
    return sum(note["what"] == "start" and note["key"] == key for note in notes)


def may_end(key: str) -> bool:
    """Return whether the test lets a task end."""
    return os.path.exists(f"{os.environ['PROJ_LEDGER']}.{key}")


def wait_to_end(key: str) -> None:
    """Return once the test lets a task end."""
    while not may_end(key):
        time.sleep(0.02)


if "PROJ_STALL" in os.environ:
    # The event loop stalls when a task is received, until the test lets this key end.
    signals.task_received.connect(lambda **_: wait_to_end(os.environ["PROJ_STALL"]), weak=False)


@signals.worker_ready.connect
def note_stalls(**_: Any) -> None:
    """Write down when the main process stalled."""
    if "PROJ_LEDGER" in os.environ:
        StallWatch(lambda stall: note("stall", str(stall.seconds))).start()


@signals.worker_ready.connect
def break_pool(sender: Any, **_: Any) -> None:
    """Break a pool of threads if a test requests that."""
    if "PROJ_NO_THREADS" in os.environ:
        lose_threads(sender.pool, after=0)


@lease_lost.connect
@lease_capped.connect
def note_loss(signal: Any, task: str, cause: str, held_for: float, **_: Any) -> None:
    assert held_for > 0
    note(signal.name, f"{task.rpartition('.')[2]} {cause}")


# -- Tasks that end well --------------------------------------------------------------------


@app.task
def work(key: str, seconds: float = 0.0) -> None:
    note("start", key)
    time.sleep(seconds)
    note("end", key)


@app.task(acks_on_failure_or_timeout=False)
def hold(key: str) -> None:
    """Runs until the test lets it end."""
    note("start", key)
    wait_to_end(key)
    note("end", key)


@app.task
def hold_each(key: str) -> None:
    """Runs until the test lets this run of it end: `let_end("a 1")` the first of "a"."""
    note("start", key)
    wait_to_end(f"{key} {starts(key)}")
    note("end", key)


@app.task
def hold_python(key: str, seconds: int) -> None:
    """Let no other thread run any Python for so long, as one call of a C library may.

    It begins that call once the test lets it end.
    """
    note("start", key)
    wait_to_end(key)
    ctypes.PyDLL(None).sleep(seconds)
    note("end", key)


@app.task
def slow_once(key: str, seconds: float) -> None:
    """Takes its time when it runs for the first time only."""
    note("start", key)
    if starts(key) == 1:
        time.sleep(seconds)
    note("end", key)


if "PROJ_SLOW_ONCE" in os.environ:
    slow_once.sqs_heartbeat = json.loads(os.environ["PROJ_SLOW_ONCE"])


@app.task(sqs_heartbeat=False)
def unleased(key: str) -> None:
    note("start", key)
    wait_to_end(key)
    note("end", key)


@app.task(acks_late=False)
def early(key: str) -> None:
    note("start", key)
    note("end", key)


@app.task(ignore_result=False)
def returns(key: str) -> str:
    note("start", key)
    note("end", key)
    return key


@app.task(rate_limit="5/s")
def limited(key: str) -> None:
    note("start", key)
    note("end", key)


# -- Tasks that fail ------------------------------------------------------------------------


@app.task(acks_on_failure_or_timeout=False)
def fail(key: str, seconds: float = 0.0) -> None:
    note("start", key)
    time.sleep(seconds)
    raise ValueError(key)


@app.task
def fail_and_ack(key: str) -> None:
    """Its failures are acked, which is Celery's default."""
    note("start", key)
    raise ValueError(key)


@app.task(acks_on_failure_or_timeout=False)
def depend(key: str) -> None:
    """Fails until the test says that what it depends on is back: `let_end("dependency")`."""
    note("start", key)
    if not may_end("dependency"):
        raise ConnectionError(key)
    note("end", key)


class Custom(BaseException):
    """Not an `Exception`."""


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise ValueError("no repr")

    __str__ = __repr__


class UnprintableBase(BaseException):
    __repr__ = __str__ = Unprintable.__repr__


def _raising(error: Callable[[], BaseException]) -> Callable[[], NoReturn]:
    def end() -> NoReturn:
        raise error()

    return end


def _kill_greenlet() -> None:
    green = _green_library()
    # By another greenlet, as a library would.
    green.spawn(green.kill, green.getcurrent())
    green.sleep(60)


def _time_out() -> None:
    green = _green_library()
    with green.Timeout(0.01):
        green.sleep(60)


def _green_library() -> Any:
    # The library with which Celery replaced this worker's threads.
    return importlib.import_module("eventlet" if "eventlet.patcher" in sys.modules else "gevent")


#: How a task may end in any pool.
ENDS: dict[str, Callable[[], object]] = {
    "exit": sys.exit,
    "interrupt": _raising(KeyboardInterrupt),
    "generator exit": _raising(GeneratorExit),
    "cancelled": _raising(asyncio.CancelledError),
    "memory": _raising(MemoryError),
    "custom": _raising(Custom),
    "unpicklable": _raising(Unpicklable),
    "unprintable": _raising(Unprintable),
    "unprintable base": _raising(UnprintableBase),
}
#: How only greenlets may end.
GREEN_ENDS: dict[str, Callable[[], object]] = {"killed": _kill_greenlet, "timeout": _time_out}


@app.task(acks_on_failure_or_timeout=False)
def end_by(key: str) -> None:
    """Ends as the key says."""
    note("start", key)
    {**ENDS, **GREEN_ENDS}[key]()


@app.task
def end_and_ack(key: str, way: str) -> None:
    """Ends as `way` says. Its failures are acked."""
    note("start", key)
    ENDS[way]()


@app.task
def reject(key: str, requeue: bool) -> None:
    note("start", key)
    raise Reject(key, requeue=requeue)


@app.task(acks_on_failure_or_timeout=False, time_limit=8)
def overrun(key: str) -> None:
    note("start", key)
    time.sleep(30)


@app.task(acks_on_failure_or_timeout=False)
def ignore_signals(key: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("start", key)
    wait_to_end(key)


@app.task(bind=True, reject_on_worker_lost=True)
def die(self: Task[Any, Any], key: str) -> None:
    note("start", key)
    receives = self.request.properties["delivery_info"]["sqs_message"]["Attributes"]
    if int(receives["ApproximateReceiveCount"]) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", key)


@app.task(bind=True, max_retries=0)
def out_of_retries(self: Task[Any, Any], key: str) -> None:
    note("start", key)
    raise self.retry(countdown=0)


# -- Tasks that decide about their message --------------------------------------------------


@app.task(autoretry_for=(Exception,))
def release(key: str, delay: float) -> None:
    """Release its message in the first run."""
    note("start", key)
    if current_lease.receive_count == 1:
        raise ReleaseMessage(delay=delay, reason="by design")
    note("end", key)


@app.task
def release_anyway(key: str) -> None:
    """Release its message in any worker, in each run."""
    note("start", key)
    raise ReleaseMessage(delay=1)


@app.task(acks_on_failure_or_timeout=False, reject_on_worker_lost=True)
def delay_and_fail(key: str, delay: float, is_killed: bool) -> None:
    """Set a delay, then fail in the first run."""
    note("start", key)
    if current_lease.receive_count == 1:
        current_lease.release_delay = delay
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(key)
    note("end", key)


@app.task
def watch(key: str) -> None:
    """Write down the message, and the time left of its lease until the test lets it end."""
    note("message", json.dumps([key, current_lease.message_id, current_lease.receive_count]))
    while not may_end(key):
        note("left", str(current_lease.remaining()))
        time.sleep(0.1)
    note("end", key)


@app.task
def guard(key: str, seconds: float) -> None:
    """Write down why the lease is no longer valid."""
    note("start", key)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            current_lease.ensure_valid(0.1)
            time.sleep(0.05)
    except LeaseLost as error:
        note("lost", json.dumps([str(error), error.message_id, error.remaining]))
    note("end", key)


# -- Tasks of message groups ----------------------------------------------------------------


@app.task(bind=True, acks_on_failure_or_timeout=False)
def step(self: Task[Any, Any], key: str, first: str = "") -> None:
    """Take a step. `first` is what it does the first time: "fail", or a way to retry."""
    note("start", key)
    if first and starts(key) == 1:
        if first == "fail":
            raise ValueError(key)
        retry(self, first)
    note("end", key)


def retry(task: Task[Any, Any], how: str) -> None:
    """Retry a task. If this returns, the task continues."""
    if how == "retried":
        raise task.retry(countdown=1)
    if how == "changed":
        raise task.retry(args=task.request.args, countdown=1)
    if how == "asked":
        task.retry(countdown=1, throw=False)
        return
    with contextlib.suppress(Retry):
        task.retry(countdown=1)
    if how == "caught-then-failed":
        raise ValueError(how)


@app.task(ignore_result=False)
def part(number: int) -> int:
    """Return a part of a chord's sum."""
    note("part", str(number))
    return number


@app.task
def total(parts: list[int]) -> None:
    """Note the sum of a chord's parts."""
    note("total", str(sum(parts)))


if "PROJ_BATCHES" in os.environ:
    # Only one environment has celery-batches.
    from tests.acceptance import batching  # noqa: F401
