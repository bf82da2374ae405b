"""A process in its own process group, with a log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol


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
