"""Decides whether the process of a keeper hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.leases.events import MOST_HANGING

#: How often the worker checks its keeper, in seconds.
LOOK_SECONDS = 0.2
#: How often a keeper writes a tick, in seconds.
TICK_SECONDS = 0.1
#: A keeper hangs if it wrote no tick and was not busy at so many checks: one second.
_LOOKS = 5
#: It also hangs if it wrote no tick and was busy at so many checks: five seconds, because a busy
#: machine may delay it.
_BUSY_LOOKS = 25
#: A check that comes so many seconds too late does not count: the machine is busy, or the worker
#: itself had stopped.
_SLACK = 0.1
#: A keeper that starts hangs if it was not busy at so many checks: three seconds, because it may
#: have to load its code from a slow disk.
_START_LOOKS = 15
#: How long a keeper may take to start on a busy machine, in seconds.
_START_SECONDS = 30.0

#: The state of a thread that runs, or waits for a CPU (proc(5)).
_RUNNABLE = "R"
#: If a keeper has lived for so many seconds, the pauses before the next one start over.
LONG_LIFE = 60.0


def is_unfit(hanging: int, age: float) -> bool:
    """Return whether calls occupy so many threads of a keeper that another one should continue.

    They do not harm other queues at once. So it first lives long enough for its successor to start
    without a pause. If calls hang for hours, a keeper is then replaced once a minute at most.

    Args:
        hanging: How many of its calls hang.
        age: How long it has lived, in seconds.
    """
    return hanging >= MOST_HANGING and age >= LONG_LIFE


class LivenessMonitor:
    """Checks the ticks that a keeper writes into the table, five times a second.

    A check that comes late does not count. So a worker that was stopped, for example by a task
    that lets no other thread run, does not take its keeper for dead when it continues.

    Args:
        table: Where the keeper writes its ticks. It has none yet.
        clock: Monotonic seconds.
        is_busy: Returns whether the keeper runs or waits for a CPU. A new keeper would have to
            wait as well.

    Attributes:
        began_at: When the keeper was started.
    """

    def __init__(
        self,
        table: Table,
        clock: Callable[[], float],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._table = table
        self._clock = clock
        self._is_busy = is_busy
        self.began_at = self._looked_at = clock()
        self._tick = 0.0
        self._idle = self._busy = 0

    def is_gone(self) -> bool:
        """Check the keeper. Return whether it hangs.

        While it starts, it hangs if it was busy once and then idle for too long. Without /proc,
        `is_busy` is never true, and neither is this.
        """
        now, tick = self._clock(), self._table.tick
        passed, self._looked_at = now - self._looked_at, now
        if tick != self._tick:
            self._tick = tick
            self._idle = self._busy = 0
            return False
        if passed > LOOK_SECONDS + _SLACK:
            return False
        is_busy = self._is_busy()
        self._busy += is_busy
        self._idle += not is_busy
        if tick > 0:
            return self._idle >= _LOOKS or self._busy >= _BUSY_LOOKS
        if is_busy or not self._busy:
            self._idle = 0
        return self._idle >= _START_LOOKS or now - self.began_at > _START_SECONDS


def is_busy(pid: int) -> bool:
    """Return whether a thread of a process runs, or waits for a CPU. False without /proc.

    On a busy machine a process may wait for a CPU for seconds. A process that was stopped, or
    hangs in a lock or in the network, does not wait for a CPU.
    """
    return any(_state(thread) == _RUNNABLE for thread in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(stat: Path) -> str:
    try:
        # The process's name comes before the state and may contain any characters.
        return stat.read_text(errors="replace").rpartition(") ")[2][:1]
    except OSError:
        # The thread has ended.
        return ""
