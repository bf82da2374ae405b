"""Processes that the warm server forks: like `subprocess.Popen`, or run to their end."""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.support.environment import SAFE_ENV
from tests.support.markdown import ROOT
from tests.support.waiting import wait_until


class Forked:
    """A command of this interpreter, in a process forked from the warm server.

    Args:
        command: The whole command: `[sys.executable, "-m", module, ...]`, or with a script.
        log: The file for its standard output, and without `errors` also for its standard error.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log: IO[bytes],
        errors: IO[bytes] | None = None,
    ) -> None:
        interpreter, *args = self._command = list(command)
        assert interpreter == sys.executable, command
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(str(warm_server()))
        request = {"args": args, "env": dict(env), "cwd": str(cwd)}
        text = json.dumps(request).encode() + b"\n"
        files = array.array("i", [log.fileno(), (errors or log).fileno()])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files.tobytes())]
        sent = self._connection.sendmsg([text], rights)
        self._connection.sendall(text[sent:])
        self._answers = self._connection.makefile("rb")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once there is one.

        Raises:
            subprocess.TimeoutExpired: It still runs after `timeout` seconds.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _look(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
                # An empty line: the server is gone, and has killed all its processes.
                end = json.loads(self._answers.readline() or b'{"exit_code": -9}')
                self.returncode = end["exit_code"]
                self._answers.close()
                self._connection.close()
            return self.returncode


def run_forked(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return its exit code and its output."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        code = Forked(command, env, cwd, out, errors).wait()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(list(command), code, *texts)


@functools.cache
def warm_server() -> Path:
    """Start this process's server, once, and return its socket."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    path = folder / "socket"
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm.server", str(path)],
        cwd=ROOT,
        env={**os.environ, **SAFE_ENV},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )

    def close() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        log.close()
        shutil.rmtree(folder)

    atexit.register(close)
    wait_until(
        lambda: path.exists() or server.poll() is not None,
        tell=lambda: (folder / "log").read_text(),
    )
    if server.poll() is not None:
        raise RuntimeError(f"the warm server ended:\n{(folder / 'log').read_text()}")
    return path
