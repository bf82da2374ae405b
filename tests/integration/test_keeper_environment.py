"""The parts of its worker's environment that a keeper's process inherits."""

from __future__ import annotations

import os
import site
import socket
import sys
import tempfile
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
from celery_sqs_heartbeat.link.hello import Hello
from celery_sqs_heartbeat.link.wire import Wire
from tests.support.markdown import ROOT
from tests.support.waiting import wait_until


@pytest.mark.parametrize("is_installed", [False, True])
def test_the_keepers_metrics_stay_out_of_the_applications_files(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    if is_installed:
        monkeypatch.setattr(site, "getsitepackages", lambda: [str(ROOT)])
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
    monkeypatch.setenv("AWS_PROFILE", "workers")
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as table:
        child = KeeperProcess(theirs.fileno(), table.fileno())
        try:
            # It is empty for a moment after the start.
            wait_until(lambda: bool(psutil.Process(child.pid).environ()))
            environment = psutil.Process(child.pid).environ()
        finally:
            child.kill()
    assert environment["AWS_PROFILE"] == "workers"
    assert "PROMETHEUS_MULTIPROC_DIR" not in environment


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs Python's option -P")
def test_a_module_in_the_workers_folder_does_not_replace_pythons_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "queue.py").write_text("raise AssertionError")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    table = share_table(8)
    ours, theirs = socket.socketpair()
    with theirs:
        child = KeeperProcess(theirs.fileno(), shared_descriptor())
    wire = Wire(ours.detach())
    try:
        wire.post(Hello(pid=os.getpid()).message())
        wire.flush()
        wait_until(lambda: table.tick > 0 or child.has_ended())
        assert table.tick > 0
    finally:
        wire.close()
        child.kill()
        unshare_table()
