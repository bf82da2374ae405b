"""The parts of its worker's environment that a keeper's process inherits."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from celery_sqs_heartbeat.current.sharing import (
    VARIABLE,
    share_table,
    shared_descriptor,
    unshare_table,
)
from celery_sqs_heartbeat.link.child import KeeperProcess
from celery_sqs_heartbeat.link.deliveries import delivery_sockets
from celery_sqs_heartbeat.link.frames import Wire
from celery_sqs_heartbeat.link.messages import Hello
from tests.support.waiting import wait_until


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], KeeperProcess]]:
    """Starts a keeper, and returns once it is ready."""
    monkeypatch.delenv(VARIABLE, raising=False)
    table = share_table(8)
    ours, theirs = socket.socketpair()
    wire = Wire(ours.detach())
    inlet, outlet = delivery_sockets()
    with theirs, inlet, outlet, contextlib.ExitStack() as opened:
        opened.callback(unshare_table)
        opened.callback(wire.close)

        def start() -> KeeperProcess:
            child = KeeperProcess(theirs.fileno(), outlet.fileno(), shared_descriptor())
            opened.callback(child.kill)
            wire.post(Hello(pid=os.getpid()).message())
            wire.flush()
            wait_until(lambda: table.tick > 0 or child.has_ended())
            assert table.tick > 0
            return child

        yield start


def test_a_keeper_loads_no_hook_from_its_workers_path_and_the_environment_is_its_own_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: Callable[[], KeeperProcess]
) -> None:
    """Launchers as ddtrace-run put a `sitecustomize` on PYTHONPATH."""
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(1)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
    monkeypatch.setenv("AWS_PROFILE", "workers")
    environment = psutil.Process(started().pid).environ()
    assert environment["AWS_PROFILE"] == "workers"
    assert environment.keys().isdisjoint({"PROMETHEUS_MULTIPROC_DIR", "PYTHONPATH"})


def test_a_module_in_the_workers_folder_does_not_replace_pythons_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: Callable[[], KeeperProcess]
) -> None:
    for name in ("queue", "json"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    started()
