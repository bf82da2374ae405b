"""A process with the interface of a Docker container, for pytest-docker-tools."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

#: The attributes of a container without network or ports, so there is nothing to wait for.
_NO_NETWORK: dict[str, Any] = {
    "NetworkSettings": {"Networks": {}, "Ports": {}},
    "HostConfig": {"PortBindings": {}},
}


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


class ProcessContainer:
    """Runs one command, with all its children in their own process group.

    Every run logs to its own file. After a restart the log is that of the new run.
    """

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
        self._start_command = start
        self._command = list(command)
        self._env = dict(env)
        self._cwd = cwd
        self._log_dir = log_dir
        self._runs = 0
        self._process = self._start()

    @property
    def id(self) -> str:
        """The container's id, which becomes the node's host name."""
        return f"{self.name}-{self.pid}"

    @property
    def pid(self) -> int:
        """The process id of the current or last run, which is also the id of its process group."""
        return self._process.pid

    @property
    def status(self) -> str:
        """`running` or `exited`."""
        return "running" if self.exit_code is None else "exited"

    @property
    def exit_code(self) -> int | None:
        """The exit code, the negative signal number if a signal ended it, or None while it runs."""
        return self._process.poll()

    @property
    def attrs(self) -> dict[str, Any]:
        """The parts of `docker inspect` that pytest-docker-tools reads."""
        settings = [f"{key}={value}" for key, value in self._env.items()]
        return {**_NO_NETWORK, "Config": {"Env": settings}, "State": {"Status": self.status}}

    def reload(self) -> None:
        """Do nothing: the status is read from the process each time."""

    def logs(self) -> bytes:
        """Return what the current or last run wrote."""
        return self._log_path(self._runs).read_bytes()

    def history(self) -> bytes:
        """Return what all runs wrote."""
        return b"".join(self._log_path(run).read_bytes() for run in range(1, self._runs + 1))

    def kill(self, signum: str | int | None = None) -> None:
        """Send a signal to the main process; SIGKILL, the default, ends its children too.

        A container dies in the same way: its first process gets the signals, and when that
        process is killed, no other process of the container survives.
        """
        number = _number("SIGKILL" if signum is None else signum)
        if number == signal.SIGKILL:
            self.end()
        elif self.exit_code is None:
            self._process.send_signal(number)

    def restart(self, timeout: float = 10) -> None:
        """Stop it gracefully, or by force after `timeout` seconds, and run the command again."""
        self.kill("SIGTERM")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout)
        self.end()
        self._process = self._start()

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

    def exec_run(self, cmd: str | Sequence[str], **ignored: object) -> tuple[int, bytes]:
        """Run another command in the same environment; return its exit code and output."""
        words = shlex.split(cmd) if isinstance(cmd, str) else list(cmd)
        done = subprocess.run(
            words,
            cwd=self._cwd,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout

    def _start(self) -> Running:
        self._runs += 1
        with self._log_path(self._runs).open("wb") as log:
            return self._start_command(self._command, self._env, self._cwd, log)

    def _log_path(self, run: int) -> Path:
        return self._log_dir / f"{self.name}-{run}.log"


def _number(name: str | int) -> signal.Signals:
    return signal.Signals[name] if isinstance(name, str) else signal.Signals(name)
