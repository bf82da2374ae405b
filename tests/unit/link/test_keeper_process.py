"""A real keeper's process: what it inherits, which signals it survives, and when it exits.

It exits after its worker, once SQS has confirmed what it can, or when it is unfit for its work.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock, call

import psutil
import pytest

from celery_sqs_heartbeat.current.sharing import (
    VARIABLE,
    SharedFile,
    share_table,
    shared_descriptor,
    unshare_table,
)
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import NOT_DELIVERED
from celery_sqs_heartbeat.link import child as child_module
from celery_sqs_heartbeat.link import keeper_main
from celery_sqs_heartbeat.link.child import KeeperProcess
from celery_sqs_heartbeat.link.deliveries import Outlet, delivery_sockets
from celery_sqs_heartbeat.link.frames import Wire
from celery_sqs_heartbeat.link.messages import Hello
from celery_sqs_heartbeat.link.serving import KeeperEnd
from celery_sqs_heartbeat.link.watching import WatchedProcess
from celery_sqs_heartbeat.receiving.reception import Reception
from tests.support.leases import lease_of
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.link.pairs import Far, pack

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)
#: A keeper without a sign of life counts as hanging after so many seconds, which are more than a
#: stall of the machine. A flush may take longer.
HANG_SECONDS, FLUSH_SECONDS = 6.0, 9.0

only_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")


class Started:
    """A keeper, and its worker's end of the link."""

    def __init__(self) -> None:
        self.table = share_table(8)
        ours, theirs = socket.socketpair()
        inlet, outlet = delivery_sockets()
        with theirs, outlet, inlet:
            self.child = KeeperProcess(theirs.fileno(), outlet.fileno(), shared_descriptor())
        self.wire = Wire(ours.detach())

    def say(self, *message: Any) -> None:
        self.wire.post(message)
        self.wire.flush()

    def greet(self) -> None:
        """Send the hello, and wait until the keeper writes a tick."""
        self.say(*Hello(pid=os.getpid(), level=30).message())
        wait_until(lambda: self.table.tick > 0 or self.child.has_ended())
        assert not self.child.has_ended()

    def close(self) -> None:
        self.wire.close()
        self.child.kill()
        unshare_table()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Started]]:
    monkeypatch.delenv(VARIABLE, raising=False)
    made: list[Started] = []

    def begin() -> Started:
        made.append(Started())
        return made[-1]

    yield begin
    for each in made:
        each.close()


def test_signals_that_end_its_worker_end_no_keeper_and_it_exits_when_it_should(
    start: Callable[[], Started],
) -> None:
    started = start()
    child = started.child
    # It can't ignore them yet.
    for number in ENDING:
        os.kill(child.pid, number)
    started.greet()
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    for number in ENDING:
        os.killpg(child.pid, number)
    ticked = started.table.tick
    wait_until(lambda: started.table.tick > ticked + 0.3)
    assert not child.has_ended()
    started.say("stop", 1.0)
    wait_until(child.has_ended)
    assert child.describe_end() == "exit status 0"
    # It leaves no zombie.
    assert not psutil.pid_exists(child.pid)


def test_a_keeper_without_a_hello_exits_when_the_link_is_closed(
    start: Callable[[], Started],
) -> None:
    started = start()
    started.wire.close()
    wait_until(started.child.has_ended)
    assert started.child.describe_end() == "exit status 0"


def test_a_keeper_that_has_finished_exits_at_once_regardless_of_atexit_handlers(
    start: Callable[[], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"import atexit, time\natexit.register(time.sleep, {2 * PATIENCE})\n"
    monkeypatch.setattr(child_module, "_RUN", code + child_module._RUN)
    started = start()
    started.greet()
    started.say("stop", 0.1)
    wait_until(started.child.has_ended)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGRTMIN + 5])
def test_the_end_of_a_killed_keeper_is_described_by_its_signal(
    start: Callable[[], Started], number: int
) -> None:
    child = start().child
    os.kill(child.pid, number)
    wait_until(child.has_ended)
    is_named = number == signal.SIGKILL
    assert child.describe_end() == f"signal {'SIGKILL' if is_named else int(number)}"
    child.kill()
    assert not psutil.pid_exists(child.pid)


@only_proc
def test_a_keeper_has_its_workers_environment_and_modules_but_no_hook_and_no_other_descriptor(
    start: Callable[[], Started], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Launchers as ddtrace-run put a `sitecustomize` on PYTHONPATH."""
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(1)\n")
    for name in ("queue", "json"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, value in (
        ("PYTHONPATH", str(tmp_path)),
        ("PROMETHEUS_MULTIPROC_DIR", "/nowhere"),
        ("AWS_PROFILE", "workers"),
    ):
        monkeypatch.setenv(name, value)
    secret, other = os.pipe()
    os.set_inheritable(secret, True)
    started = start()
    started.greet()
    environment = psutil.Process(started.child.pid).environ()
    assert environment["AWS_PROFILE"] == "workers"
    assert environment.keys().isdisjoint({"PROMETHEUS_MULTIPROC_DIR", "PYTHONPATH"})
    held = []
    for descriptor in Path(f"/proc/{started.child.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            held.append(os.readlink(descriptor))
    assert os.readlink(f"/proc/self/fd/{secret}") not in held
    assert len([name for name in held if name.startswith("socket:")]) == 2
    assert [name for name in held if "memfd:" in name] or not hasattr(os, "memfd_create")
    os.close(secret)
    os.close(other)


def test_a_hello_of_another_version_ends_the_keeper_and_advises_a_restart() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, closing(SharedFile(Table.size_for(16))) as file:
        ours.sendall(pack([("hello", 99, {})]))
        given = (theirs.fileno(), theirs.fileno(), file.descriptor)
        command = [sys.executable, "-m", "celery_sqs_heartbeat.keeper", *map(str, given)]
        done = subprocess.run(command, pass_fds=given, capture_output=True, text=True)
        assert (done.returncode, Table(file.memory).tick) == (1, 0.0)
    assert "restart the worker" in done.stderr


# -- Its life, on a thread -----------------------------------------------------------------------


@pytest.fixture
def far() -> Iterator[tuple[Far, int]]:
    """A worker's end of a link, and the descriptor of its keeper's end."""
    ours, theirs = socket.socketpair()
    far = Far(ours)
    far.send(pack([Hello(pid=os.getpid()).message()]))
    yield far, theirs.detach()
    far.close()


def run(link: int) -> int:
    """Be a keeper until it exits, and return its exit status."""
    worker, keeper = delivery_sockets()
    outlets: list[Outlet] = []

    def note(*args: int) -> Outlet:
        outlets.append(Outlet(*args))
        return outlets[-1]

    with pytest.MonkeyPatch.context() as noting, closing(SharedFile(Table.size_for(16))) as file:
        noting.setattr(keeper_main, "Outlet", note)
        status = keeper_main.run(link, keeper.detach(), file.descriptor, logs=False)
    # Its process would end here. Its thread ends with the worker.
    worker.close()
    for thread in threading.enumerate():
        if thread.name == "sqs-heartbeat-rooms":
            thread.join(PATIENCE)
    for outlet in outlets:
        outlet._socket.close()
    return status


def test_a_keeper_whose_thread_has_died_exits_with_an_error(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThreadKeeper, "step", Mock(side_effect=SystemExit))
    assert run(far[1]) == 1


def test_a_keeper_whose_link_has_closed_receives_no_more(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Reception] = []
    monkeypatch.setattr(keeper_main, "_ORPHAN_SECONDS", 0.0)
    monkeypatch.setattr(Reception, "end", lambda reception: ended.append(reception))
    far[0].close()
    assert run(far[1]) == 0
    ended[0]._keeper.stop(0)


def test_a_keeper_that_is_late_writes_no_tick_until_it_is_in_time(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def look(_: ThreadKeeper) -> bool:
        seen.append("late" if len(seen) < 5 else "in time")
        if seen[-1] == "in time":
            far[0].send(pack([("stop", 5.0)]))
        return seen[-1] == "late"

    monkeypatch.setattr(ThreadKeeper, "is_late", property(look))
    monkeypatch.setattr(Table, "tick", property(fset=lambda *_: seen.append("tick")))
    assert run(far[1]) == 0
    assert seen.index("tick") > seen.index("in time")


def test_what_a_dead_worker_wrote_last_counts_before_its_messages_are_released(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Mock()
    monkeypatch.setattr(WatchedProcess, "has_ended", True)
    monkeypatch.setattr(ThreadKeeper, "start", lambda *_: far[0].send(pack([("done", "m-1")])))
    monkeypatch.setattr(KeeperEnd, "take", end.take)
    monkeypatch.setattr(KeeperEnd, "release_all_held", end.release_all_held)
    assert run(far[1]) == 0
    assert end.mock_calls == [call.take(["done", "m-1"]), call.release_all_held(ANY)]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_keeper_that_stops_reads_its_last_polls_and_then_releases_what_no_task_has(
    far: tuple[Far, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_answered: bool,
) -> None:
    """It is on its way to a worker that does not read it any more."""
    steps, leases = Mock(), [lease_of(name) for name in "abc"]
    leases[1].started_at = 1.0
    steps.join.return_value = is_answered
    for name in ("end", "join"):
        monkeypatch.setattr(Reception, name, getattr(steps, name))
    monkeypatch.setattr(KeeperEnd, "held", lambda _: leases)
    monkeypatch.setattr(ThreadKeeper, "release", steps.release)
    far[0].send(pack([("stop", 5.0)]))
    assert run(far[1]) == 0
    released = [call.release(name, 0, NOT_DELIVERED) for name in "ca"]
    assert steps.mock_calls == [call.end(), call.join(), *released]
    assert ("is not answered yet" in caplog.text) is not is_answered
