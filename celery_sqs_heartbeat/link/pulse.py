"""Whether the process of a keeper still does something."""

from __future__ import annotations

import math
from collections.abc import Callable

from celery_sqs_heartbeat.current.table import Table

#: The tick of a keeper that only ends: its leases are settled, and it may take its time.
LAST_TICK = math.inf
#: How often its worker looks, in seconds.
LOOK_SECONDS = 0.2
#: How often a keeper shows that it lives, in seconds.
TICK_SECONDS = 0.1
#: After so many looks in a row at which it had done nothing it is taken to hang: one second.
_LOOKS = 5
#: A look that comes so much later than it should, in seconds, says nothing: the machine is busy, or
#: the worker itself stood still.
_SLACK = 0.1
#: How long it may take to start on a busy machine, in seconds.
_START_SECONDS = 30.0


class Pulse:
    """Looks at the ticks that a keeper writes into the table.

    The ticks are read afresh after each wait. So a worker that stood still, in a task that lets no
    other thread run, does not take its keeper for dead when it goes on.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._began_at = self._looked_at = clock()
        self._tick = 0.0
        self._idle = 0

    def begin(self) -> None:
        """Note that a new keeper starts."""
        self._table.tick = self._tick = 0.0
        self._began_at = self._looked_at = self._clock()
        self._idle = 0

    @property
    def last_tick(self) -> float:
        """When the keeper was last seen at work, in seconds of the clock; 0.0 before."""
        return self._tick

    def is_due(self) -> bool:
        """Return whether it is time for a look."""
        return self._clock() - self._looked_at >= LOOK_SECONDS

    def is_gone(self) -> bool:
        """Look; return whether the keeper hangs."""
        now, tick = self._clock(), self._table.tick
        passed, self._looked_at = now - self._looked_at, now
        if tick == LAST_TICK:
            return False
        if tick == 0.0:
            return now - self._began_at > _START_SECONDS and passed <= LOOK_SECONDS + _SLACK
        if tick != self._tick:
            self._tick, self._idle = tick, 0
        elif passed <= LOOK_SECONDS + _SLACK:
            self._idle += 1
        return self._idle >= _LOOKS
