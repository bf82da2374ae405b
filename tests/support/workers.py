"""Real worker processes, each in its own process group, with a log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from tests.support.environment import SAFE_ENV
from tests.support.waiting import PATIENCE, pauses
from tests.support.warm.client import Forked


class Running(Protocol):
    """A process that was started, like `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...


class Start(Protocol):
    """Starts a command in its own session, with a log for its output."""

    def __call__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, log: IO[bytes]
    ) -> Running: ...


def start_fresh(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a command in a fresh interpreter, as users do."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


class LoggedProcess:
    """Runs one command, with all its children in their own process group."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        log_dir: Path,
        start: Start = start_fresh,
    ) -> None:
        self.name = name
        # The soak's report reads it by this name.
        self._log = log_dir / f"{name}-1.log"
        with self._log.open("wb") as log:
            self._process = start(list(command), dict(env), cwd, log)

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, the negative signal number if a signal ended it, or None while it runs."""
        return self._process.poll()

    def logs(self) -> str:
        """Return what it has written."""
        return self._log.read_text(errors="replace")

    def kill(self, signum: str | int = "SIGKILL") -> None:
        """Send a signal to the main process; SIGKILL, the default, ends its children too.

        A container dies in the same way: its first process gets the signals, and when that
        process is killed, no other process of the container survives.
        """
        number = signal.Signals[signum] if isinstance(signum, str) else signal.Signals(signum)
        if number == signal.SIGKILL:
            self.end()
        elif self.exit_code is None:
            self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Return the exit code once there is one.

        Raises:
            subprocess.TimeoutExpired: It still runs after `timeout` seconds.
        """
        return self._process.wait(timeout)

    def end(self) -> None:
        """Kill whatever is left of its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


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
