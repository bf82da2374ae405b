"""What all parts stand on: threads, a wake-up, a clock, numbers as people write them, processes.

The clock of the leases continues while a machine is suspended, as SQS's does. A pool process ends
with the worker that forked it, and no other process ends with the one that started it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import counted, seconds
from celery_sqs_heartbeat.common.threads import AutoResetEvent, CallerThreads
from tests.support.waiting import PATIENCE, wait_until
from tests.support.workers import ROOT

BOOTTIME, RAW, MONOTONIC = 7, 4, 1
LINUX = {"CLOCK_BOOTTIME": BOOTTIME, "CLOCK_MONOTONIC_RAW": RAW, "CLOCK_MONOTONIC": MONOTONIC}
MACOS = {"CLOCK_MONOTONIC_RAW": RAW, "CLOCK_MONOTONIC": MONOTONIC}
#: What each clock shows after the machine was suspended. Only one kept running.
LINUX_SAYS = {BOOTTIME: 3600.0, RAW: 1.0, MONOTONIC: 1.0}
MACOS_SAYS = {RAW: 3600.0, MONOTONIC: 3600.1}


def test_a_pool_does_its_jobs_in_order_though_one_fails_and_accepts_none_after_its_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool, may_begin, done = CallerThreads(1, "test"), threading.Event(), list[int]()
    pool.submit(lambda: may_begin.wait(PATIENCE))
    for number in range(6):
        pool.submit(lambda number=number: done.append(number) if number != 3 else 1 / 0)
    pool.close()
    pool.submit(lambda: done.append(99))
    may_begin.set()
    wait_until(lambda: len(done) == 5)
    assert done == [0, 1, 2, 4, 5]
    assert "a job of thread test failed" in caplog.text


def test_threads_that_are_idle_take_jobs_before_another_is_started() -> None:
    pool, seen = CallerThreads(20, "test"), list[int]()
    for turn in range(20):
        pool.submit(lambda: seen.append(threading.get_ident()))
        wait_until(lambda turn=turn: len(seen) > turn)
    # A thread counts as idle a moment after its job.
    assert len({*seen}) < 10
    pool.close()


def test_a_ring_makes_one_wait_return_however_long_it_would_be() -> None:
    event = AutoResetEvent()
    event.set()
    event.set()
    assert [event.wait(PATIENCE), event.wait(0), event.wait(-1)] == [True, False, False]
    threading.Timer(0.01, event.set).start()
    assert event.wait(float("inf"))


def test_a_signals_handler_may_ring_while_the_same_thread_rings() -> None:
    event = AutoResetEvent()
    before = signal.signal(signal.SIGALRM, lambda *_: event.set())
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    try:
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            event.set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert event.wait(0)


@pytest.mark.parametrize(
    ("platform", "clocks", "says", "now"),
    [
        ("linux", LINUX, LINUX_SAYS, 3600.0),
        ("darwin", MACOS, MACOS_SAYS, 3600.0),
        # macOS before 10.12, and an old Linux kernel: Python has the name, but not the clock.
        ("darwin", MACOS, {}, 1.0),
        ("linux", LINUX, {}, 1.0),
        ("win32", {}, {}, 1.0),
    ],
)
def test_the_clock_that_keeps_running_during_a_suspend_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    clocks: dict[str, int],
    says: dict[int, float],
    now: float,
) -> None:
    def gettime(number: int) -> float:
        if number not in says:
            raise OSError(22, "Invalid argument")
        return says[number]

    for name in LINUX:
        monkeypatch.delattr(time, name, raising=False)
    for name, number in clocks.items():
        monkeypatch.setattr(time, name, number, raising=False)
    monkeypatch.setattr(time, "clock_gettime", gettime)
    # Stops during a suspend on every system.
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    assert clock.choose_clock(platform)() == now


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages")]
)
def test_one_thing_is_written_in_the_singular(count: int, text: str) -> None:
    assert counted(count, "message") == text


def test_some_nouns_have_a_plural_of_their_own() -> None:
    assert [counted(count, "is", "are") for count in (1, 2)] == ["1 is", "2 are"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3.3333, "3.33"), (10, "10"), (99.95, "100"), (1200, "1200"), (14_400.4, "14400")],
)
def test_seconds_are_written_without_an_exponent(value: float, text: str) -> None:
    assert seconds(value) == text


#: Forks, and dies before the child calls `end_with_parent`.
ORPHAN = """
import os, time
from celery_sqs_heartbeat.worker.step import end_with_parent, note_worker
note_worker()
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
end_with_parent()
print("it lives", flush=True)
"""
#: The same, with a parent that lives.
CHILD = """
import os
from celery_sqs_heartbeat.worker.step import end_with_parent, note_worker
note_worker()
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    end_with_parent()
    print("it lives", flush=True)
"""
#: A worker with a solo pool, whose process loses its parent when the pool exists.
SOLO = """
import os, time
from celery.concurrency.solo import TaskPool
from celery_sqs_heartbeat.current.sharing import VARIABLE
from celery_sqs_heartbeat.worker.step import note_worker, prepare_pool_processes
prepare_pool_processes()
reader, writer = os.pipe()
if os.fork():
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
note_worker()
os.environ[VARIABLE] = "a table"
parent = os.getppid()
TaskPool()
os.write(writer, b".")
while os.getppid() == parent:
    time.sleep(0.01)
print("it lives", flush=True)
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can do it")
lives = "it lives\n"


@linux
@pytest.mark.parametrize(("script", "said"), [(ORPHAN, ""), (CHILD, lives), (SOLO, lives)])
def test_a_pool_process_ends_with_its_worker_and_a_solo_worker_does_not_end_with_its_parent(
    script: str, said: str
) -> None:
    # Returns once no process has the pipe open any more.
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.stdout == said
