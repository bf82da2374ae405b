"""A real keeper's process: how its worker starts and ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from celery_sqs_heartbeat.current.sharing import share_table, shared_descriptor, unshare_table
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.link.child import KeeperProcess
from celery_sqs_heartbeat.link.deliveries import delivery_sockets
from celery_sqs_heartbeat.link.frames import Wire
from celery_sqs_heartbeat.link.messages import Hello
from tests.support.waiting import wait_until


class Started(NamedTuple):
    """A keeper, and its worker's end of the link."""

    child: KeeperProcess
    wire: Wire
    table: Table

    def greet(self) -> None:
        """Send the hello, and wait until the keeper writes a tick."""
        self.wire.post(Hello(pid=os.getpid(), level=30).message())
        self.wire.flush()
        wait_until(lambda: self.table.tick > 0)


@pytest.fixture
def started() -> Iterator[Started]:
    table = share_table(8)
    ours, theirs = socket.socketpair()
    inlet, outlet = delivery_sockets()
    with theirs, outlet:
        child = KeeperProcess(theirs.fileno(), outlet.fileno(), shared_descriptor())
    started = Started(child, Wire(ours.detach()), table)
    yield started
    started.wire.close()
    inlet.close()
    child.kill()
    unshare_table()


def descriptors_of(pid: int) -> list[str]:
    """Return the targets of the process's descriptors, without any that it closes meanwhile."""
    names = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(os.readlink(descriptor))
    return names


def has_no_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_keeper_starts_and_exits_when_it_should(started: Started) -> None:
    started.greet()
    assert not started.child.has_ended()
    assert started.child.describe_end() == "still running"
    started.wire.post(("stop", 1.0))
    started.wire.flush()
    wait_until(started.child.has_ended)
    assert started.child.describe_end() == "exit status 0"
    assert has_no_process(started.child.pid)


def test_a_keeper_without_a_hello_exits_when_the_link_is_closed(started: Started) -> None:
    started.wire.close()
    wait_until(started.child.has_ended)
    assert started.child.describe_end() == "exit status 0"


def test_signals_that_end_a_worker_do_not_end_its_keeper(started: Started) -> None:
    started.greet()
    assert os.getsid(started.child.pid) == started.child.pid != os.getsid(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        os.killpg(started.child.pid, number)
    ticked = started.table.tick
    wait_until(lambda: started.table.tick > ticked + 0.3)
    assert not started.child.has_ended()


def test_a_killed_keeper_leaves_no_zombie(started: Started) -> None:
    pid = started.child.pid
    started.child.kill()
    assert has_no_process(pid)
    assert started.child.describe_end() == "signal SIGKILL"
    started.child.kill()


def test_a_signal_without_a_name_is_described_by_its_number(started: Started) -> None:
    number = signal.SIGRTMIN + 5
    os.kill(started.child.pid, number)
    wait_until(started.child.has_ended)
    assert started.child.describe_end() == f"signal {int(number)}"


@pytest.fixture
def inheritable() -> Iterator[str]:
    """The target of a descriptor that a child inherits unless it closes it."""
    secret, other = os.pipe()
    os.set_inheritable(secret, True)
    yield os.readlink(f"/proc/self/fd/{secret}")
    os.close(secret)
    os.close(other)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_keeper_gets_its_three_descriptors_and_no_other(
    inheritable: str, started: Started
) -> None:
    started.greet()
    held = descriptors_of(started.child.pid)
    assert inheritable not in held
    assert len([name for name in held if name.startswith("socket:")]) == 2
    assert [name for name in held if "memfd:" in name] or not hasattr(os, "memfd_create")


def test_a_hello_of_another_version_ends_the_keeper_and_advises_a_restart() -> None:
    table = share_table(8)
    try:
        ours, theirs = socket.socketpair()
        wire = Wire(ours.detach())
        inlet, outlet = delivery_sockets()
        with theirs, inlet, outlet:
            wire.post(("hello", 99, {}))
            wire.flush()
            ended = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "celery_sqs_heartbeat.keeper",
                    str(theirs.fileno()),
                    str(outlet.fileno()),
                    str(shared_descriptor()),
                ],
                pass_fds=(theirs.fileno(), outlet.fileno(), shared_descriptor()),
                capture_output=True,
                text=True,
                check=False,
            )
        wire.close()
        assert ended.returncode != 0
        assert "restart the worker" in ended.stderr
        assert table.tick == 0.0
    finally:
        unshare_table()
