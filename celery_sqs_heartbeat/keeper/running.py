"""Runs a keeper's ticks on a thread, with a watchdog."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from celery_sqs_heartbeat.keeper.tick_thread import TickThread
from celery_sqs_heartbeat.keeper.watchdog import Watchdog
from celery_sqs_heartbeat.leases.health import KeeperHealth

logger = logging.getLogger(__name__)

#: A tick counts as late only after this many seconds. Less is normal on a busy machine.
_LEAST_LATENESS = 1.0


class RunningTicks:
    """The thread that makes a keeper's ticks, and the watchdog that watches it.

    Args:
        step: Does what is due and returns when to call it again, in seconds of `clock`.
        guarded: Calls a function while nothing else changes the keeper.
        interval: The longest sleep of the thread, in seconds.
        clock: Monotonic seconds.
        late_after: How late a tick may be before it is reported, in seconds. If None, the smallest
            threshold so far, or three intervals before there is one, and at least a second.
        on_late: Called with the seconds by which the thread is late, or the process did not run.
    """

    def __init__(
        self,
        *,
        step: Callable[[], float],
        guarded: Callable[[Callable[[], bool]], bool],
        interval: float,
        clock: Callable[[], float],
        late_after: float | None,
        on_late: Callable[[float], None],
    ) -> None:
        self._guarded = guarded
        self._interval = interval
        self._late_after = late_after
        self._on_late = on_late
        self._least_threshold = math.inf
        self._ticks = TickThread(step, interval, clock, self._be_late)
        self._watchdog = Watchdog(self._ticks, self._revive, self._limit, clock, self._be_late)

    @property
    def is_wanted(self) -> bool:
        """Whether it was started and not stopped."""
        return self._ticks.is_wanted

    @property
    def health(self) -> KeeperHealth:
        """The thread's health. Reading it never blocks, even if the thread hangs."""
        return self._watchdog.health

    def start(self) -> None:
        """Start both threads. Does nothing if they run already.

        Raises:
            RuntimeError: The system refuses another thread.
        """
        if not self._ticks.is_wanted:
            self._watchdog.start()
            self._ticks.start()

    def stop(self) -> None:
        """Let the thread end after its step."""
        self._watchdog.stop()
        self._ticks.stop()

    def join(self, timeout: float) -> None:
        """Wait until the thread ends, for at most `timeout` seconds."""
        self._ticks.join(timeout)

    def wake(self) -> None:
        """Start the next tick now."""
        self._ticks.wake()

    def note_threshold(self, threshold: float) -> None:
        """Note the threshold of a lease, in seconds. A tick must not be later than that."""
        self._least_threshold = min(self._least_threshold, threshold)

    def _revive(self) -> bool:
        return self._guarded(self._start_again)

    def _start_again(self) -> bool:
        if self._ticks.is_wanted:
            self._ticks.start()
        return self._ticks.is_wanted

    def _limit(self) -> float:
        if self._late_after is not None:
            return self._late_after
        known = self._least_threshold < math.inf
        return max(_LEAST_LATENESS, self._least_threshold if known else 3 * self._interval)

    def _be_late(self, seconds: float) -> None:
        try:
            self._on_late(seconds)
        except Exception:
            logger.exception("sqs-heartbeat: the report of a late keeper failed")
