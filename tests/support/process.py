"""A process with the face of a Docker container, as pytest-docker-tools expects one."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

#: What a container without network or ports says of itself: nothing to wait for.
_NO_NETWORK: dict[str, Any] = {
    "NetworkSettings": {"Networks": {}, "Ports": {}},
    "HostConfig": {"PortBindings": {}},
}


class Running(Protocol):
    """A process that was started; as `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...


class Start(Protocol):
    """Starts a command in a session of its own, writing to a log."""

    def __call__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, log: IO[bytes]
    ) -> Running: ...


def start_fresh(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a command as users do."""
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
    """Runs one command, with all its children in a process group of their own.

    Every run logs to a file of its own, so that after a restart the log is the new run's.
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
        """Stands for the container's id, which becomes the node's host name."""
        return f"{self.name}-{self.pid}"

    @property
    def pid(self) -> int:
        """Process id of the current or last run, and the id of its process group."""
        return self._process.pid

    @property
    def status(self) -> str:
        """`running` or `exited`."""
        return "running" if self.exit_code is None else "exited"

    @property
    def exit_code(self) -> int | None:
        """None while it runs, minus the signal's number if one ended it."""
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

        That is how a container dies: its first process gets the signals, and nothing
        in it survives that process being killed.
        """
        number = _number("SIGKILL" if signum is None else signum)
        if number == signal.SIGKILL:
            self.end()
        elif self.exit_code is None:
            self._process.send_signal(number)

    def restart(self, timeout: float = 10) -> None:
        """Stop it in order, by force after `timeout` seconds, and run the command again."""
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
