"""The keeper watches its worker: its processes, with `pidfd_open` and without, and its loop.

A stall of the event loop is logged once, and so is its end.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from celery_sqs_heartbeat.link.watching import (
    STALL_SECONDS,
    WatchedProcess,
    WorkerLoop,
    WorkerProcesses,
    wait_readable,
)
from tests.support.waiting import wait_until

Start = Callable[[], "subprocess.Popen[bytes]"]

#: How long the loops here may wait for messages, in seconds.
WAITS = 20.0
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


@pytest.mark.usefixtures("_either_way")
def test_a_process_that_ended_before_the_watch_has_ended(start: Start) -> None:
    process = start()
    process.kill()
    process.wait()
    assert WatchedProcess(process.pid).has_ended


@pytest.mark.usefixtures("_either_way")
def test_the_parent_process_is_alive() -> None:
    assert not WatchedProcess(os.getppid()).has_ended


@pytest.mark.usefixtures("_either_way")
def test_a_process_of_another_user_is_alive() -> None:
    assert not WatchedProcess(1).has_ended


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
def test_a_zombie_has_ended(start: Start) -> None:
    process = start()
    watched = WatchedProcess(process.pid)
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: watched.has_ended)
    watched.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
def test_processes_are_watched_without_pidfd_open_too(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise PermissionError(1, "not allowed")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    process = start()
    watched = WatchedProcess(process.pid)
    assert watched.fileno() is None
    assert not watched.has_ended
    process.kill()
    process.wait()
    assert watched.has_ended


@pytest.mark.usefixtures("_either_way")
def test_a_task_may_run_while_its_process_lives(start: Start) -> None:
    main, first, second = start(), start(), start()
    processes = WorkerProcesses(main.pid)
    processes.note_pool([first.pid, second.pid])
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


@pytest.mark.usefixtures("_either_way")
def test_a_process_that_the_pool_did_not_report_is_watched_too(start: Start) -> None:
    main, unknown = start(), start()
    processes = WorkerProcesses(main.pid)
    assert processes.may_run(unknown.pid)
    unknown.kill()
    unknown.wait()
    assert not processes.may_run(unknown.pid)


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


def test_a_descriptor_with_a_high_number_can_be_waited_for() -> None:
    """A worker with a thousand connections that replaces its keeper has such a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1_030
    if soft <= wanted:
        if hard != resource.RLIM_INFINITY and hard <= wanted:
            pytest.skip("the system allows no such number")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + 10, hard))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.dup2(ours.fileno(), wanted)
        try:
            assert not wait_readable([wanted], 0)
            theirs.send(b"x")
            assert wait_readable([wanted], 0)
        finally:
            os.close(wanted)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_closed_connection_is_readable() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert wait_readable([ours.fileno()], None)


def test_waiting_for_no_descriptor_ends_after_the_timeout() -> None:
    assert not wait_readable([], 0.01)


class Watched:
    """A loop whose time the test sets."""

    def __init__(self, *, runs_tasks: bool = False) -> None:
        self.now = 100.0
        self.loop = WorkerLoop(lambda: self.now)
        self.loop.watch(waits=WAITS, runs_tasks=runs_tasks)

    def is_stalled_after(self, seconds: float, *, has_running: bool = False) -> bool:
        self.now += seconds
        self.loop.look(has_running=has_running)
        return self.loop.is_stalled


def test_a_loop_may_take_the_announced_wait_and_ten_seconds_more() -> None:
    watched = Watched()
    assert not watched.is_stalled_after(WAITS + STALL_SECONDS)
    assert watched.is_stalled_after(0.1)


def test_a_stall_and_its_end_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    assert watched.is_stalled_after(WAITS + STALL_SECONDS + 1)
    assert watched.is_stalled_after(5)
    watched.loop.tick()
    assert not watched.is_stalled_after(0)
    assert not watched.is_stalled_after(1)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "has been stalled for 31.0 s" in caplog.messages[0]
    assert "continues after 36.0 s" in caplog.messages[1]


def test_a_loop_that_runs_tasks_may_be_late_only_during_a_task() -> None:
    watched = Watched(runs_tasks=True)
    assert not watched.is_stalled_after(10_000, has_running=True)
    assert watched.is_stalled_after(0, has_running=False)


def test_running_tasks_do_not_excuse_a_loop_that_runs_none() -> None:
    assert Watched().is_stalled_after(10_000, has_running=True)


def test_reading_the_state_between_two_checks_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    watched.now += 10_000
    assert not watched.loop.is_stalled
    assert watched.loop.age == 10_000
    assert not caplog.messages


def test_the_loop_of_a_worker_that_ends_is_not_watched() -> None:
    watched = Watched()
    assert watched.is_stalled_after(10_000)
    watched.loop.watch(waits=None, runs_tasks=False)
    assert not watched.is_stalled_after(10_000)
    assert watched.loop.age is None
    watched.loop.tick()
    assert watched.loop.age is None
