"""`python -m tests.support.patched gevent logs`: one scenario in a process that is patched.

Prints what the test asserts on, as JSON.
"""

from __future__ import annotations

import sys
import warnings

if __name__ == "__main__":
    # First of all, as Celery does it.
    warnings.simplefilter("ignore")
    if sys.argv[1] == "gevent":
        from gevent.monkey import patch_all as patch
    else:
        from eventlet import monkey_patch as patch
    patch()

import contextlib
import gc
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from celery_sqs_heartbeat import LeaseKeeper, LeaseTerms
from celery_sqs_heartbeat.common import native
from celery_sqs_heartbeat.green.home import home
from celery_sqs_heartbeat.keeper.callers import CallerThreads
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.sqs import clients as sqs_clients
from celery_sqs_heartbeat.sqs.clients import ClientPool
from tests.support.waiting import PATIENCE

QUEUE = "https://sqs/1/q"
#: Due for extension a tenth of a second after each extension.
EAGER = LeaseTerms(visibility_timeout=30, threshold=29.9)
LINES = 200
STRANGERS = 300
#: Others get as many turns in a call, or more.
TURNS = 5


def spin(seconds: float) -> None:
    """Let no other greenlet of this thread run."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def spawn(job: Callable[[], None]) -> None:
    threading.Thread(target=job, daemon=True).start()


def wait(condition: Callable[[], Any]) -> None:
    """Let other greenlets run until the condition holds."""
    while not condition():
        time.sleep(0.01)


class Sqs:
    """Confirms everything, after a pause in which other greenlets run."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.may_answer: Callable[[], bool] = lambda: True

    def send(self, call: Call) -> Sequence[Outcome]:
        until = time.monotonic() + PATIENCE / 2
        time.sleep(0.01)
        while not self.may_answer() and time.monotonic() < until:
            time.sleep(0.01)
        self.sent += [(e.action.value, threading.get_native_id()) for e in call.entries]
        return [Outcome.DONE] * len(call.entries)


class SlowHandler(logging.Handler):
    """Notes which thread of the system writes; others run while it does."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), threading.get_native_id()))
        # Neither gevent nor eventlet makes this one yield; Python lets other threads run.
        os.system("true")


def logs() -> dict[str, Any]:
    """Two threads write to one log at one time."""
    home()
    handler = SlowHandler()
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    logger = logging.getLogger("some.library")

    def write(name: str) -> None:
        for number in range(LINES):
            logger.info("%s %d", name, number)
            native.Bell().wait(0.001)

    native.start_thread(lambda: write("apart"), "apart")
    spawn(lambda: write("here"))
    wait(lambda: len(handler.lines) == 2 * LINES)
    written = {
        name: [line for line, _ in handler.lines if line.startswith(name)]
        == [f"{name} {number}" for number in range(LINES)]
        for name in ("apart", "here")
    }
    return {"written": written, "threads": len({thread for _, thread in handler.lines})}


def strangers() -> dict[str, Any]:
    """Threads apart ask who they are, as each log line does, while greenlets are started."""
    sys.setswitchinterval(1e-6)
    home()
    told: list[str] = []
    greeted: list[int] = []
    for number in range(STRANGERS):
        native.start_thread(lambda: told.append(threading.current_thread().name), "asks")
        spawn(lambda number=number: greeted.append(number))  # type: ignore[misc]
    wait(lambda: len(told) == len(greeted) == STRANGERS)
    return {"told": len(told), "greeted": len(greeted)}


def keeping() -> dict[str, Any]:
    """A task that does not yield, then a flush while others want to run."""
    sqs = Sqs()
    keeper = LeaseKeeper(sqs, terms=EAGER)
    keeper.start()
    keeper.receive(QUEUE, {"MessageId": "a", "ReceiptHandle": "a-1"})
    wait(lambda: sqs.sent)
    before = len(sqs.sent)
    until = time.monotonic() + PATIENCE
    while len(sqs.sent) < before + 3 and time.monotonic() < until:
        spin(0.1)
    meanwhile = len(sqs.sent) - before
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while True:
            time.sleep(0.01)
            ticks += 1

    spawn(tick)
    sqs.may_answer = lambda: ticks >= TURNS
    keeper.done("a-1")
    flushed = keeper.flush(PATIENCE)
    ticked = ticks >= TURNS
    sqs.may_answer = lambda: True
    keeper.stop()
    again = LeaseKeeper(sqs, terms=EAGER)
    for each in (keeper, again):
        each.start()
        each.receive(QUEUE, {"MessageId": "b", "ReceiptHandle": "b-1"})
        each.done("b-1")
        each.stop()
    return {
        "meanwhile": meanwhile,
        "apart": threading.get_native_id() not in {thread for _, thread in sqs.sent},
        "flushed": flushed,
        "ticked": ticked,
        "deletes": sum(action == "delete" for action, _ in sqs.sent),
        "alive": keeper.is_alive or again.is_alive,
    }


def jobs() -> dict[str, Any]:
    """What is not the keeper's own runs with the tasks, as many at once as it should."""
    order: list[int] = []
    threads: set[int] = set()
    callers = CallerThreads(1, "test")

    def job(number: int) -> None:
        time.sleep(0.01 if number % 2 else 0.0)
        order.append(number)
        threads.add(threading.get_native_id())

    def submit() -> None:
        for number in range(20):
            callers.submit(lambda number=number: job(number))  # type: ignore[misc]

    native.start_thread(submit, "submits")
    wait(lambda: len(order) == 20)
    return {"in order": order == list(range(20)), "here": threads == {threading.get_native_id()}}


def ending() -> dict[str, Any]:
    """A keeper that has ended leaves no thread and nothing open behind."""
    process = psutil.Process()
    sqs = Sqs()

    def live() -> None:
        keeper = LeaseKeeper(sqs, terms=EAGER)
        keeper.start()
        keeper.receive(QUEUE, {"MessageId": "a", "ReceiptHandle": "a-1"})
        keeper.done("a-1")
        keeper.stop()

    live()
    wait(lambda: process.num_threads() == 1)
    gc.collect()
    files, before = process.num_fds(), open_files()
    for _ in range(5):
        live()
    wait(lambda: process.num_threads() == 1)
    # What a thread leaves to greenlet, the main thread frees, after the thread's end; what is
    # in a cycle by then (an error's traceback, say), the collector, which has no cause to run.
    until = time.monotonic() + PATIENCE

    def is_freed() -> bool:
        gc.collect()
        return process.num_fds() <= files

    wait(lambda: is_freed() or time.monotonic() > until)
    # What was not freed yet when it was counted first may be gone now.
    more = max(0, process.num_fds() - files)
    named = sorted((open_files() - before).elements())
    return {"files": more, "named": named, "calls": len(sqs.sent)}


def open_files() -> Counter[str]:
    """Return what is open, by what Linux calls it without the numbers of pipes and sockets."""
    names: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        # The folder that is listed has been closed since.
        with contextlib.suppress(FileNotFoundError):
            names[os.readlink(link).partition(":[")[0]] += 1
    return names


def clients() -> dict[str, Any]:
    """Each thread has connections of its own."""
    sqs_clients.new_client = lambda *_: SimpleNamespace(close=lambda: None)
    pool = ClientPool()
    config: Any = None
    pool.use(config, QUEUE, 10)
    here = pool(QUEUE)
    there: list[bool] = []
    native.start_thread(lambda: there.append(pool(QUEUE) is here), "asks")
    wait(lambda: there)
    return {"here": pool(QUEUE) is here, "there": there[0]}


if __name__ == "__main__":
    assert native.is_green()
    scenario = {each.__name__: each for each in (logs, strangers, keeping, jobs, ending, clients)}[
        sys.argv[2]
    ]
    print(json.dumps(scenario()), flush=True)  # noqa: T201
    os._exit(0)
