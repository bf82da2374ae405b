"""Whether the process of a keeper still does something."""

from __future__ import annotations

from collections.abc import Callable

from celery_sqs_heartbeat.current.table import Table

#: How often its worker looks, in seconds.
LOOK_SECONDS = 0.2
#: How often a keeper shows that it lives, in seconds.
TICK_SECONDS = 0.1
#: After so many looks in a row at which it had done nothing it is taken to hang: one second.
_LOOKS = 5
#: As many where it had something to do each time: the machine is too busy for it. Five seconds.
_BUSY_LOOKS = 25
#: A look that comes so much later than it should, in seconds, says nothing: the machine is busy, or
#: the worker itself stood still.
_SLACK = 0.1
#: After so many looks in a row at which one that starts had nothing to do it is taken to hang:
#: three seconds, as what it loads may come from a slow disk.
_START_LOOKS = 15
#: How long it may take to start on a busy machine, in seconds.
_START_SECONDS = 30.0


class LivenessMonitor:
    """Looks at the ticks that a keeper writes into the table.

    The ticks are read afresh after each wait. So a worker that stood still, in a task that lets no
    other thread run, does not take its keeper for dead when it goes on.

    Args:
        clock: Monotonic seconds.
        is_busy: Returns whether the keeper runs, or waits for a CPU. Another one would wait, too.
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
        self._began_at = self._looked_at = clock()
        self._tick = self._last_tick = 0.0
        self._idle = self._busy = 0

    def begin(self) -> None:
        """Note that a new keeper starts."""
        self._table.tick = self._tick = 0.0
        self._began_at = self._looked_at = self._clock()
        self._idle = self._busy = 0

    @property
    def last_tick(self) -> float:
        """When a keeper was last seen at work, in seconds of the clock; 0.0 before."""
        return self._last_tick

    def is_due(self) -> bool:
        """Return whether it is time for a look."""
        return self._clock() - self._looked_at >= LOOK_SECONDS

    def is_gone(self) -> bool:
        """Look; return whether the keeper hangs."""
        now, tick = self._clock(), self._table.tick
        passed, self._looked_at = now - self._looked_at, now
        if tick == 0.0 and self._stands_still_at_start(passed):
            return True
        if tick == 0.0:
            return now - self._began_at > _START_SECONDS and passed <= LOOK_SECONDS + _SLACK
        if tick != self._tick:
            self._tick = self._last_tick = tick
            self._idle = self._busy = 0
        elif passed <= LOOK_SECONDS + _SLACK:
            is_busy = self._is_busy()
            self._busy += is_busy
            self._idle += not is_busy
        return self._idle >= _LOOKS or self._busy >= _BUSY_LOOKS

    def _stands_still_at_start(self, passed: float) -> bool:
        """Return whether it has had nothing to do for long, where the system says such."""
        if self._is_busy():
            self._busy, self._idle = 1, 0
        elif self._busy and passed <= LOOK_SECONDS + _SLACK:
            self._idle += 1
        return self._idle >= _START_LOOKS
