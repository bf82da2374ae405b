"""Which of a worker's processes live, for the keeper that watches them.

By `pidfd_open` where there is one (Linux 5.3): a descriptor means this very process, even when
another has its number later, and shows its end at once. The end of the link would not do: a daemon
that a task has forked may hold the link open for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from celery_sqs_heartbeat.link.readable import wait_readable


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
                # An old kernel, or a sandbox that forbids it: its number must do.
                self._descriptor = None

    def fileno(self) -> int | None:
        """Return a descriptor that can be read when the process has ended; None without one."""
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
        """End it, if it lives."""
        if self.has_ended:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Watch it no more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class WorkerProcesses:
    """The main process of a worker and those of its pool.

    Args:
        pid: Of the main process.
    """

    def __init__(self, pid: int) -> None:
        self.main = WatchedProcess(pid)
        self._pool: dict[int, WatchedProcess] = {}

    def note_pool(self, pids: Iterable[int]) -> None:
        """Note which processes the pool has now. Those that it had are known until they end."""
        for pid in pids:
            if pid not in self._pool or self._pool[pid].has_ended:
                self._pool[pid] = WatchedProcess(pid)
        for pid in [pid for pid, each in self._pool.items() if each.has_ended]:
            self._pool.pop(pid).close()

    def kill_pool(self) -> None:
        """End the processes of the pool, whose main process is gone: nothing takes their acks."""
        for each in self._pool.values():
            each.kill()

    def may_run(self, pid: int | None) -> bool:
        """Return whether a task may still run.

        Args:
            pid: The process that has begun it; None where it is not known to have begun: any of
                the pool may have taken it a moment ago.
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
