"""The processes of a worker's keepers, which may outlive it."""

from __future__ import annotations

import contextlib
import os

import psutil


class Keepers:
    """All keepers that a worker has had.

    A keeper is the only child of a worker that leads its own session.

    Args:
        worker: The worker's process id.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._known: list[psutil.Process] = []

    def look(self) -> list[psutil.Process]:
        """Find the keepers that are new, and return them."""
        known = {process.pid for process in self._known}
        new = [each for each in children(self._worker) if each.pid not in known and _leads(each)]
        self._known += new
        return new

    def living(self) -> list[psutil.Process]:
        """Return the keepers that are alive, the latest last."""
        return [process for process in self._known if lives(process)]

    def kill(self) -> None:
        """Kill the keepers that are alive."""
        for process in self.living():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def lives(process: psutil.Process) -> bool:
    """Return whether a process has not ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children(pid: int) -> list[psutil.Process]:
    """Return the live children of a process."""
    try:
        return [child for child in psutil.Process(pid).children() if lives(child)]
    except psutil.NoSuchProcess:
        return []


def of_pool(pid: int) -> list[psutil.Process]:
    """Return the processes of a worker's pool."""
    return [child for child in children(pid) if not _leads(child)]


def left_of(group: int) -> list[int]:
    """Return the ids of the live processes of a process group."""
    return [
        process.pid
        for process in psutil.process_iter()
        if _group(process.pid) == group and lives(process)
    ]


def _leads(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == process.pid
    except ProcessLookupError:
        return False


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
