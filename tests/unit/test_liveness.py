"""When a keeper counts as hanging: not while it only waits for a CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.link.child import LOOK_SECONDS, LivenessMonitor, is_busy
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.waiting import wait_until

only_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says so")


def looks_until_gone(*, busy: bool, ticks: int = 0) -> int:
    """Return after how many checks a keeper that ticked at the first check counts as hanging."""
    clock, table = FakeClock(100.0), Table(bytearray(Table.size_for(16)))
    monitor = LivenessMonitor(table, clock, lambda: busy)
    table.tick = clock()
    for look in range(1, 100):
        clock.advance(LOOK_SECONDS)
        if look <= ticks:
            table.tick = clock()
        if monitor.is_gone():
            return look
    return 0


def test_a_keeper_that_does_nothing_for_a_second_hangs() -> None:
    assert looks_until_gone(busy=False) == 6
    assert looks_until_gone(busy=False, ticks=10) == 15


def test_a_keeper_that_waits_for_a_cpu_has_five_seconds() -> None:
    assert looks_until_gone(busy=True) == 26


@pytest.mark.parametrize(
    ("busy", "gone"),
    [
        pytest.param([True] * 5 + [False] * 30, 20, id="it stalls"),
        pytest.param([True, *[False] * 14] * 9, 0, id="its disk is slow"),
        pytest.param([False] * 135, 0, id="the system does not report it"),
    ],
)
def test_a_keeper_that_stalls_at_its_start_has_three_seconds(busy: list[bool], gone: int) -> None:
    clock, table = FakeClock(100.0), Table(bytearray(Table.size_for(16)))
    states = iter(busy)
    monitor = LivenessMonitor(table, clock, lambda: next(states))
    found = 0
    for look in range(1, len(busy) + 1):
        clock.advance(LOOK_SECONDS)
        if monitor.is_gone():
            found = look
            break
    assert found == gone


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process that computes."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process
        process.kill()


@only_linux
def test_a_process_is_busy_while_it_computes_and_not_when_it_is_stopped(
    worker: subprocess.Popen[bytes],
) -> None:
    wait_until(lambda: is_busy(worker.pid))
    os.kill(worker.pid, signal.SIGSTOP)
    wait_until(lambda: not is_busy(worker.pid))


@only_linux
def test_a_process_that_sleeps_is_not_busy() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        wait_until(lambda: not is_busy(sleeping.pid))
        sleeping.kill()


def test_a_process_that_has_ended_is_not_busy() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not is_busy(process.pid)
