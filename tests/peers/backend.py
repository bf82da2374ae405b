"""A Redis for task results, in a separate process."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from pathlib import Path

from tests.support.servers import STOP_SECONDS, TRIES, free_port
from tests.support.service import Service
from tests.support.waiting import wait_until


class RedisServer(Service):
    """Debian's `redis-server`, with nothing kept on disk."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is, as a result backend."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: There is none, or it ends or does not answer.
        """
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("there is no redis-server: install Debian's package of that name")
        for _ in range(TRIES):
            # Another process may have taken the port since it was found to be free.
            self.port = free_port()
            options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
            with self._log_path.open("ab") as log:
                self._process = subprocess.Popen([program, *options], stdout=log, stderr=log)
            if self._answers(self._process):
                return
            self.stop()
        raise RuntimeError(f"redis-server does not answer: see {self._log_path}")

    def stop(self) -> None:
        """End the process, by force if necessary."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until it answers or has ended. Return whether it answers."""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: process.poll() is not None or self._is_served_by(process.pid))
            return process.poll() is None
        return False

    def _is_served_by(self, pid: int) -> bool:
        """Return whether this process answers at the port, and not another Redis."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as at:
            at.settimeout(1.0)
            at.sendall(b"INFO server\r\n")
            return b"\r\nprocess_id:%d\r\n" % pid in at.recv(1 << 16)
        return False
