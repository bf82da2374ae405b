"""What a reader of a document has: a shell for its commands, and plain HTTP."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import requests

from tests.support.environment import SAFE_ENV
from tests.support.waiting import wait_until


class Shell:
    """A reader's terminals, in one folder."""

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
        """Begin in a folder, with the programs of a virtual environment."""
        self.folder = folder
        self.log = folder / "log"
        self._jobs: list[subprocess.Popen[bytes]] = []
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._env = {**os.environ, **SAFE_ENV, "PATH": path}

    def export(self, command: str) -> None:
        """Set variables for the commands to come."""
        words = shlex.split(command)
        assert words[0] == "export", command
        self._env.update(word.split("=", 1) for word in words[1:])

    def run(self, command: str) -> str:
        """Run a command to its end, and return its output."""
        return subprocess.run(
            command,
            shell=True,
            executable="/bin/bash",
            cwd=self.folder,
            env=self._env,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command that keeps running, in its own process group, as a terminal does."""
        with self.log.open("ab") as log:
            job = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._jobs.append(job)
        return job

    def wait_for(self, text: str, count: int = 1) -> str:
        """Return the log once it contains the text `count` times."""
        wait_until(lambda: self.log.read_text().count(text) >= count, tell=self.log.read_text)
        return self.log.read_text()

    def interrupt(self) -> None:
        """End everything that still runs as the reader would, the newest first, and wait for it."""
        while self._jobs:
            job = self._jobs.pop()
            job.terminate()
            job.wait()

    def end(self) -> None:
        """End everything that still runs."""
        for job in self._jobs:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def direct_session() -> requests.Session:
    """Return a session that goes through no web proxy."""
    session = requests.Session()
    session.trust_env = False
    return session
