"""Lets a keeper watch its worker, and outlive it.

The signals that end the worker come from Ctrl+C, from a closed terminal, and from a supervisor that
signals every process of a service. The keeper ignores them from its start: on a busy machine its
interpreter and imports take a second, and a signal during that second must not end it either.

A process is watched by `pidfd_open` where the system has it (Linux 5.3). Such a descriptor always
refers to the same process, even if another process gets its id later, and it becomes readable when
the process ends. The end of the link is not a reliable sign: a daemon forked by a task may keep the
link open indefinitely.

A worker whose loop has stalled neither starts tasks nor acks messages, but the keeper still extends
every lease. Nothing else would show the stall. A task of a solo pool runs in the loop: while it
runs, the loop does not count as stalled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator

logger = logging.getLogger(__name__)

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)
#: How long one turn of a loop may take, in seconds, in addition to the wait that it announces.
STALL_SECONDS = 10.0
#: How often `WatchedProcess.wait` looks, in seconds.
_LOOK_SECONDS = 0.02
#: These include the end: a socket that the other side has closed, or a process that has ended.
_EVENTS = select.POLLIN | select.POLLHUP | select.POLLERR


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Block the signals in this thread during the block.

    Processes that it starts in the block inherit this, and keep the signals blocked.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignore the signals, including those that were blocked and are pending."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)


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


class WorkerLoop:
    """One worker's event loop.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ticked_at: float | None = None
        self._waits = 0.0
        self._runs_tasks = False
        self._stalled_since: float | None = None

    @property
    def is_stalled(self) -> bool:
        """Whether the loop had stalled at the last check."""
        return self._stalled_since is not None

    def watch(self, *, waits: float | None, runs_tasks: bool) -> None:
        """Begin or stop to watch the loop.

        Args:
            waits: How long it may wait for messages, in seconds; None to stop watching, because
                the worker exits.
            runs_tasks: Whether tasks run in the loop.
        """
        self._ticked_at = None if waits is None else self._clock()
        self._waits, self._runs_tasks = waits or 0.0, runs_tasks

    def tick(self) -> None:
        """Note that the loop turns."""
        if self._ticked_at is not None:
            self._ticked_at = self._clock()

    @property
    def age(self) -> float | None:
        """Seconds since the loop last turned; None if it is not watched."""
        return None if self._ticked_at is None else self._clock() - self._ticked_at

    def look(self, *, has_running: bool) -> None:
        """Check whether the loop has stalled. Log the stall once, and its end once.

        Args:
            has_running: Whether a task of the worker is running.
        """
        age = self.age
        is_late = age is not None and age > STALL_SECONDS + self._waits
        has_stalled = is_late and not (self._runs_tasks and has_running)
        if has_stalled and self._stalled_since is None and age is not None:
            self._stalled_since = self._clock() - age
            logger.error(
                "sqs-heartbeat: the worker's event loop has been stalled for %.1f s: the worker "
                "neither starts tasks nor acks messages; the keeper still extends its leases",
                age,
            )
        elif not has_stalled and self._stalled_since is not None:
            logger.warning(
                "sqs-heartbeat: the worker's event loop continues after %.1f s",
                self._clock() - self._stalled_since,
            )
            self._stalled_since = None


def wait_readable(descriptors: Iterable[int], seconds: float | None) -> bool:
    """Wait until one of the descriptors is readable. Return whether one is.

    `select.select` would fail with descriptors from 1,024 on, which a worker with many connections
    passes to its keeper.

    Args:
        seconds: The longest wait; None to wait indefinitely.
    """
    return _wait([*descriptors], [], seconds)


def wait_writable(descriptor: int, seconds: float | None) -> bool:
    """Wait until a descriptor takes data, or fails. Return whether it does."""
    return _wait([], [descriptor], seconds)


def _wait(readers: list[int], writers: list[int], seconds: float | None) -> bool:
    if not hasattr(select, "poll"):
        # eventlet removes it.
        return any(select.select(readers, writers, [], seconds))
    poll = select.poll()
    for descriptor in readers:
        poll.register(descriptor, _EVENTS)
    for descriptor in writers:
        poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
