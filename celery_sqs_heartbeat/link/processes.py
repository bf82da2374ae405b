"""Lets a keeper watch which of its worker's processes are alive.

It uses `pidfd_open` where the system has it (Linux 5.3). Such a descriptor always refers to the
same process, even if another process gets its id later, and it becomes readable when the process
ends. The end of the link is not a reliable sign: a daemon forked by a task may keep the link open
indefinitely.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from celery_sqs_heartbeat.link.readable import wait_readable

#: How often `WatchedProcess.wait` looks, in seconds.
_LOOK_SECONDS = 0.02


class WatchedProcess:
    """One process, until its end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._is_child_of_ours = pid == os.getppid()
        self._descriptor: int | None = None
        self._has_ended = False
        if hasattr(os, "pidfd_open"):
            try:
                self._descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._has_ended = True
            except OSError:
                # The kernel is old, or a sandbox forbids it: the process id has to suffice.
                self._descriptor = None

    def fileno(self) -> int | None:
        """Return a descriptor that is readable once the process has ended; None without pidfd."""
        return self._descriptor

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        if not self._has_ended:
            self._has_ended = self._look()
        return self._has_ended

    def _look(self) -> bool:
        if self._descriptor is not None:
            return wait_readable([self._descriptor], 0)
        if self._is_child_of_ours:
            return os.getppid() != self.pid
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def kill(self) -> None:
        """Kill it if it is alive."""
        if self.has_ended:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until it has ended."""
        while not self.has_ended:
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Stop watching it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class WorkerProcesses:
    """The main process of a worker and those of its pool.

    Args:
        pid: The process id of the main process.
    """

    def __init__(self, pid: int) -> None:
        self.main = WatchedProcess(pid)
        self._pool: dict[int, WatchedProcess] = {}

    def note_pool(self, pids: Iterable[int]) -> None:
        """Note which processes the pool has now. Earlier ones are watched until they end."""
        for pid in pids:
            if pid not in self._pool or self._pool[pid].has_ended:
                self._pool[pid] = WatchedProcess(pid)
        for pid in [pid for pid, each in self._pool.items() if each.has_ended]:
            self._pool.pop(pid).close()

    def kill_pool(self) -> None:
        """Kill the pool's processes: the main process has ended, and no one handles their acks."""
        for each in self._pool.values():
            each.kill()

    def may_run(self, pid: int | None) -> bool:
        """Return whether a task may still run.

        Args:
            pid: The process that runs the task; None if no start was reported. Any process of the
                pool may have begun it a moment ago.
        """
        if pid is None:
            return not self.main.has_ended or any(
                not each.has_ended for each in self._pool.values()
            )
        if pid == self.main.pid:
            return not self.main.has_ended
        if pid not in self._pool:
            self._pool[pid] = WatchedProcess(pid)
        return not self._pool[pid].has_ended
