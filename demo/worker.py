"""A real Celery worker, whose processes form a process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: The checkout, from where `-A demo.proj` can be imported.
ROOT = Path(__file__).resolve().parents[1]
#: What the worker logs when it begins to consume.
READY = " ready."
#: A start takes one or two seconds. A busy machine with cold caches needs far more.
START_SECONDS = 120.0
#: How long a warm shutdown may take. A stock worker may be running a duplicate: do not wait for it.
STOP_SECONDS = 3.0
POLL_SECONDS = 0.05
TAIL_LINES = 25


class WorkerFailed(Exception):
    """A worker did not start, or exited early. The text has the end of its log."""


class Worker:
    """One run of `celery -A demo.proj worker`. It is not ready yet when this returns."""

    def __init__(
        self, name: str, options: Sequence[str], *, env: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self._log_path = folder / f"{name}.log"
        self._start_by = time.monotonic() + START_SECONDS
        self._was_killed = False
        command = [sys.executable, "-m", "celery", "-A", "demo.proj", "worker"]
        command += ["--loglevel=INFO", "--without-gossip", "--without-mingle"]
        command += ["-n", f"{name}@localhost", *options]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (nothing in it is from outside)
                command,
                cwd=ROOT,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def group(self) -> int:
        """The id of the worker's process group."""
        return self._process.pid

    def is_ready(self) -> bool:
        """Return whether the worker consumes."""
        return READY in self._log()

    def check(self) -> None:
        """Check the worker.

        Raises:
            WorkerFailed: It exited, or does not consume after `START_SECONDS`.
        """
        if self._was_killed:
            return
        if self._process.poll() is not None:
            raise self._failure(f"exited with status {self._process.returncode}")
        if time.monotonic() > self._start_by and not self.is_ready():
            raise self._failure(f"does not consume after {START_SECONDS:.0f} s")

    def terminate(self) -> None:
        """Start a warm shutdown."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill all processes of the worker at once, as the loss of a machine does."""
        self._was_killed = True
        # For a group of exited processes, macOS raises PermissionError, not ProcessLookupError.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float) -> None:
        """Return when the worker has exited, or after that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _log(self) -> str:
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    def _failure(self, what: str) -> WorkerFailed:
        tail = "\n".join(self._log().splitlines()[-TAIL_LINES:])
        return WorkerFailed(f"worker {self.name} {what}; its log ends:\n{tail}")


def shut_down(workers: Sequence[Worker]) -> None:
    """Shut workers down warmly, so that they delete finished messages. Then kill the late ones."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        worker.wait(max(0.0, deadline - time.monotonic()))
        worker.kill()
