"""Real worker processes behind pytest-celery's worker classes, without a container engine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
from celery import Celery
from pytest_celery import CeleryTestWorker, CeleryWorkerContainer
from pytest_docker_tools.exceptions import TimeoutError as LogTimeoutError

from tests.support.environment import SAFE_ENV
from tests.support.process import ProcessContainer, start_fresh
from tests.support.waiting import PATIENCE, pauses
from tests.support.warm.client import Forked

#: The folder in which the worker runs, so it can import `-A tests...`.
ROOT = Path(__file__).parents[2]
TAIL_LINES = 40


class ProcessWorkerContainer(CeleryWorkerContainer):
    """pytest-celery's worker container over a process."""

    _container: ProcessContainer

    def teardown(self) -> None:
        """End the worker and all its children."""
        self._container.end()

    def _wait_ready(self, timeout: float = PATIENCE) -> bool:
        wait_for_log(self._container, self.ready_prompt, timeout)
        return True


class ProcessWorker(CeleryTestWorker):
    """A worker under test. `kill`, `restart`, `logs` and the log assertions are pytest-celery's.

    `logs` and all waits use only the current run. `history` includes the earlier runs.
    """

    def __init__(self, process: ProcessContainer, app: Celery | None = None) -> None:
        super().__init__(ProcessWorkerContainer(process), app)
        self.process = process

    @property
    def pid(self) -> int:
        """Process id of the worker's main process."""
        return self.process.pid

    def hostname(self) -> str:
        """Return the node name it was started with, unless its arguments gave another."""
        return f"{self.name()}@localhost"

    def child_pids(self) -> list[int]:
        """Return the process ids of its pool, and of all other processes that it started."""
        return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]

    def history(self) -> str:
        """Return the log of all runs."""
        return self.process.history().decode(errors="replace")

    def wait_for_log(self, log: str, message: str = "", timeout: float = PATIENCE) -> None:
        """Wait for a text in the log; see `wait_for_log` of this module."""
        wait_for_log(self.process, log, timeout, message)

    def wait_for_exit(self, timeout: float = PATIENCE) -> int:
        """Return the exit code, minus the signal's number if one ended the worker.

        Raises:
            TimeoutError: It still runs after `timeout` seconds.
        """
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"{self.name()} still runs after {timeout} s; its log ends\n{tail(self.logs())}"
            ) from None


def wait_for_log(process: ProcessContainer, text: str, timeout: float, message: str = "") -> None:
    """Return once the text is in the log of the current run.

    Raises:
        LogTimeoutError: It is not there after `timeout` seconds, or the process ended
            without writing it. pytest-celery's log assertions catch this.
    """
    deadline = time.monotonic() + timeout
    pause = pauses()
    while True:
        # Checked before the log is read: then the log contains the process's last lines.
        exit_code = process.exit_code
        log = process.logs().decode(errors="replace")
        if text in log:
            return
        if exit_code is not None or time.monotonic() >= deadline:
            state = "running" if exit_code is None else f"exited with {exit_code}"
            raise LogTimeoutError(
                f"{message or 'waiting for a log line'}: {process.name} ({state}) did not log "
                f"{text!r} within {timeout} s; its log ends\n{tail(log)}"
            )
        next(pause)


def tail(log: str) -> str:
    """Return the log's last lines."""
    return "\n".join(log.splitlines()[-TAIL_LINES:])


def launch(
    name: str,
    *,
    app: str,
    args: Sequence[str],
    env: Mapping[str, str],
    log_dir: Path,
    celery_app: Celery | None = None,
    cwd: Path = ROOT,
    fresh: bool = False,
) -> ProcessWorker:
    """Start `celery -A app worker`. It is not ready yet when this returns.

    Args:
        fresh: Start a fresh interpreter, for tests of what happens while Celery is imported.
    """
    command = [sys.executable, "-m", "celery", "-A", app, "worker", "--loglevel=INFO"]
    command += ["-n", f"{name}@localhost", *args]
    # Green pools patch the standard library before anything else is imported.
    fresh = fresh or not {"gevent", "eventlet"}.isdisjoint(args)
    process = ProcessContainer(
        name,
        command,
        env={**os.environ, **SAFE_ENV, **env},
        cwd=cwd,
        log_dir=log_dir,
        start=start_fresh if fresh else Forked,
    )
    return ProcessWorker(process, celery_app)
