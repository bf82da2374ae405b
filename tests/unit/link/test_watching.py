"""The keeper watches its worker: its processes, with `pidfd_open` and without, and its loop.

A stall of the event loop is logged once, and so is its end.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from celery_sqs_heartbeat.link.watching import (
    WatchedProcess,
    WorkerLoop,
    WorkerProcesses,
)
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.waiting import wait_until
from tests.unit.scripts import table, value_of

Start = Callable[[], "subprocess.Popen[bytes]"]

#: Runs until its standard input ends.
WAITING = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that run until they are ended."""
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(WAITING, stdin=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=["by descriptor", "by number"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test as on a system with `pidfd_open` and as on one without it."""
    if request.param == "by number":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("this system has no pidfd_open")


@pytest.mark.usefixtures("_either_way")
def test_a_watched_process_is_alive_until_it_ends(start: Start) -> None:
    process = start()
    watched = WatchedProcess(process.pid)
    assert not watched.has_ended
    process.kill()
    process.wait()
    wait_until(lambda: watched.has_ended)
    watched.close()
    assert watched.has_ended
    # Nor is one that ended before the watch.
    assert WatchedProcess(process.pid).has_ended
    # The parent, and a process of another user.
    for pid in (os.getppid(), 1):
        assert not WatchedProcess(pid).has_ended


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
def test_a_zombie_has_ended_and_a_system_that_forbids_descriptors_has_numbers(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    watched = WatchedProcess(process.pid)
    monkeypatch.setattr(os, "pidfd_open", Mock(side_effect=PermissionError(1, "not allowed")))
    by_number = WatchedProcess(process.pid)
    assert by_number.fileno() is None
    assert not by_number.has_ended
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: watched.has_ended)
    watched.close()
    process.wait()
    assert by_number.has_ended


@pytest.mark.usefixtures("_either_way")
def test_a_task_may_run_while_its_process_lives(start: Start) -> None:
    main, first, second, unknown = start(), start(), start(), start()
    processes = WorkerProcesses(main.pid)
    processes.note_pool([first.pid, second.pid])
    # One that the pool did not report is watched, too.
    assert processes.may_run(unknown.pid)
    unknown.kill()
    unknown.wait()
    assert not processes.may_run(unknown.pid)
    assert processes.may_run(first.pid)
    assert processes.may_run(main.pid)
    first.kill()
    first.wait()
    assert not processes.may_run(first.pid)
    assert processes.may_run(second.pid)
    assert processes.may_run(None)
    main.kill()
    main.wait()
    assert not processes.may_run(main.pid)
    # No start was reported: the other process of the pool may have taken the task.
    assert processes.may_run(None)
    second.kill()
    second.wait()
    assert not processes.may_run(None)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
def test_another_process_with_a_reused_id_is_not_the_same_process(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reuses process ids. Here a descriptor of another process simulates this."""
    main, first, later = start(), start(), start()
    processes = WorkerProcesses(main.pid)
    processes.note_pool([first.pid])
    first.kill()
    first.wait()
    open_by_number = os.pidfd_open
    monkeypatch.setattr(
        os, "pidfd_open", lambda pid: open_by_number(later.pid if pid == first.pid else pid)
    )
    assert not processes.may_run(first.pid)
    # The pool now reports a process with this id: it is another one.
    processes.note_pool([first.pid])
    assert processes.may_run(first.pid)


def test_ended_processes_leave_no_descriptor_open(start: Start) -> None:
    processes = WorkerProcesses(start().pid)
    # What earlier tests left is closed when it is collected, which may happen in between.
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        process = start()
        processes.note_pool([process.pid])
        process.kill()
        process.communicate()
        wait_until(lambda pid=process.pid: not processes.may_run(pid))
        processes.note_pool([])
    assert len(os.listdir("/dev/fd")) == before


#: A loop that may wait for 20 s. `look 5 stalled` is a check 5 s later, which finds a stall.
STALLS = """
it may take the announced wait and ten seconds more:
    watch; look 30 ok; look 0.1 stalled; logged ERROR; look 5 stalled; logged ERROR
the end of a stall is logged once:
    watch; look 31 stalled; look 5 stalled; tick; look 0 ok; look 1 ok; logged ERROR WARNING
it may be late during a task that runs in it:
    watch tasks; run; look 10000 ok; idle; look 0 stalled
but not if its tasks run elsewhere:
    watch; run; look 10000 stalled
that of a worker that ends is not watched:
    watch; look 10000 stalled; age 10000; end; look 10000 ok; age none; tick; age none
"""


@table(STALLS)
def test_of_the_workers_loop(script: str, caplog: pytest.LogCaptureFixture) -> None:
    clock, running = FakeClock(100.0), False
    loop = WorkerLoop(clock)
    for verb, *words in (step.split() for step in script.split(";")):
        match verb:
            case "watch" | "end":
                loop.watch(waits=20.0 if verb == "watch" else None, runs_tasks=bool(words))
            case "tick":
                loop.tick()
            case "run" | "idle":
                running = verb == "run"
            case "look":
                clock.advance(float(words[0]))
                loop.look(has_running=running)
                assert loop.is_stalled is (words[1] == "stalled")
            case "age":
                assert loop.age == value_of(words[0])
            case "logged":
                assert [record.levelname for record in caplog.records] == words
    if "logged ERROR WARNING" in script:
        assert "has been stalled for 31.0 s" in caplog.messages[0]
        assert "continues after 36.0 s" in caplog.messages[1]
