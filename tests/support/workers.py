"""Real worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.environment import SAFE_ENV
from tests.support.process import LoggedProcess, start_fresh
from tests.support.waiting import PATIENCE, pauses
from tests.support.warm.client import Forked

#: The folder in which the worker runs, so it can import `-A tests...`.
ROOT = Path(__file__).parents[2]
TAIL_LINES = 40


class ProcessWorker:
    """A worker under test.

    Attributes:
        process: Its main process, in whose group the processes of its pool are.
    """

    def __init__(self, process: LoggedProcess) -> None:
        self.process = process
        self.logs = process.logs
        self.kill = process.kill
        self.teardown = process.end

    @property
    def pid(self) -> int:
        """Process id of the worker's main process."""
        return self.process.pid

    def wait_for_log(self, text: str) -> None:
        """Return once the text is in its log.

        Raises:
            TimeoutError: It is not there after a long time, or the process has ended without it.
        """
        deadline = time.monotonic() + PATIENCE
        pause = pauses()
        while True:
            # Checked before the log is read: then the log contains the process's last lines.
            exit_code = self.process.exit_code
            log = self.logs()
            if text in log:
                return
            if exit_code is not None or time.monotonic() >= deadline:
                state = "running" if exit_code is None else f"exited with {exit_code}"
                raise TimeoutError(
                    f"{self.process.name} ({state}) did not log {text!r} within {PATIENCE} s; its "
                    f"log ends\n{tail(log)}"
                )
            next(pause)

    def wait_for_exit(self, timeout: float = PATIENCE) -> int:
        """Return the exit code, minus the signal's number if one ended the worker.

        Raises:
            TimeoutError: It still runs after `timeout` seconds.
        """
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"{self.process.name} still runs after {timeout} s; its log ends\n"
                f"{tail(self.logs())}"
            ) from None


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
    process = LoggedProcess(
        name,
        command,
        env={**os.environ, **SAFE_ENV, **env},
        cwd=cwd,
        log_dir=log_dir,
        start=start_fresh if fresh else Forked,
    )
    return ProcessWorker(process)
