"""What the process of a keeper inherits of its worker's environment."""

from __future__ import annotations

import socket
import tempfile

import psutil
import pytest

from celery_sqs_heartbeat.link.child import KeeperProcess
from tests.support.waiting import wait_until


def test_the_keepers_metrics_stay_out_of_the_applications_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
    monkeypatch.setenv("AWS_PROFILE", "workers")
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as table:
        child = KeeperProcess(theirs.fileno(), table.fileno())
        try:
            process = psutil.Process(child.pid)
            # Linux shows it a moment after the process has begun.
            wait_until(lambda: process.environ())
            environment = process.environ()
        finally:
            child.kill()
    assert environment["AWS_PROFILE"] == "workers"
    assert "PROMETHEUS_MULTIPROC_DIR" not in environment
