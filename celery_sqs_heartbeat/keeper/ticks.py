"""The thread that makes a keeper's ticks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from celery_sqs_heartbeat.common.escaping import seconds
from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.leases.events import KeeperHealth

logger = logging.getLogger(__name__)

#: A tick counts as late only after this many seconds. Less is normal on a busy machine.
_LEAST_LATENESS = 1.0
#: A sleep that takes this many seconds longer than planned is a standstill, however short it was
#: planned. A busy machine delays a sleep by less.
_STANDSTILL_SECONDS = 1.0
#: Pause after an unexpected error in the keeper, in seconds.
_FAULT_PAUSE = 0.1


class Ticks:
    """Calls a step repeatedly on a thread, each time at the moment that the last step returned.

    An `Exception` of a step is logged. Any other error ends the thread, and nothing replaces it.
    Nothing here takes a lock that a step may hold. So the methods work even if the thread hangs.

    Args:
        step: Does what is due and returns when to call it again, in seconds of `clock`.
        interval: The longest sleep in seconds, if `step` respects it.
        clock: Monotonic seconds.
        late_after: How late a tick may be, in seconds. If None, the smallest threshold so far, or
            three intervals before there is one, and at least a second.
        on_late: Called by the thread with the seconds that a step took, if that was too long, or
            that the process did not run.
    """

    def __init__(
        self,
        step: Callable[[], float],
        *,
        interval: float,
        clock: Callable[[], float],
        late_after: float | None,
        on_late: Callable[[float], None],
    ) -> None:
        self._step = step
        self._interval = interval
        self._clock = clock
        self._late_after = late_after
        self._on_late = on_late
        self._least_threshold = math.inf
        self._run: _ThreadRun | None = None
        self._ticked_at: float | None = None
        self._due_at = math.inf
        self._standstills = 0

    @property
    def is_wanted(self) -> bool:
        """Whether it was started and not stopped. The thread then runs, unless it has died."""
        return self._run is not None and self._run.is_wanted

    @property
    def health(self) -> KeeperHealth:
        """The thread's health. Reading it never blocks, even if the thread hangs."""
        now, ticked_at, run = self._clock(), self._ticked_at, self._run
        return KeeperHealth(
            alive=run is not None and not run.has_ended.is_set(),
            last_tick_age=None if ticked_at is None else now - ticked_at,
            late=self.is_wanted and now - self._due_at > self._limit(),
            standstills=self._standstills,
        )

    def start(self) -> None:
        """Start the thread. Does nothing if it was started already.

        Raises:
            RuntimeError: The system refuses another thread.
        """
        if self.is_wanted:
            return
        # Its first tick is due now, however long the thread may take to begin it.
        self._ticked_at = self._due_at = self._clock()
        run = _ThreadRun()
        threading.Thread(target=self._loop, args=(run,), name="sqs-heartbeat", daemon=True).start()
        self._run = run

    def stop(self) -> None:
        """Let the thread end after its step."""
        if self._run is not None:
            self._run.is_wanted = False
            self._run.wakeup.set()

    def join(self, timeout: float) -> None:
        """Wait until it ends, for at most `timeout` seconds; not if it calls this itself."""
        run = self._run
        if run is not None and run.ident != threading.get_ident():
            run.has_ended.wait(timeout)

    def wake(self) -> None:
        """Start the next tick now."""
        if self._run is not None:
            self._run.wakeup.set()

    def note_threshold(self, threshold: float) -> None:
        """Note the threshold of a lease, in seconds. A tick must not be later than that."""
        self._least_threshold = min(self._least_threshold, threshold)

    def _limit(self) -> float:
        if self._late_after is not None:
            return self._late_after
        known = self._least_threshold < math.inf
        return max(_LEAST_LATENESS, self._least_threshold if known else 3 * self._interval)

    def _loop(self, run: _ThreadRun) -> None:
        run.ident = threading.get_ident()
        try:
            while run.is_wanted:
                self._tick_once(run.wakeup)
        except BaseException:
            logger.critical(
                "sqs-heartbeat: the keeper's thread has died, and extends no more leases",
                exc_info=True,
            )
        finally:
            run.has_ended.set()

    def _tick_once(self, wakeup: AutoResetEvent) -> None:
        try:
            self._sleep(self._tick(), wakeup)
        except Exception:
            logger.exception("sqs-heartbeat: unexpected error in the keeper. It continues")
            time.sleep(_FAULT_PAUSE)

    def _tick(self) -> float:
        """Make a step, and return when the next one is due."""
        self._ticked_at = self._due_at = began = self._clock()
        due = self._step()
        ended = self._clock()
        self._due_at = max(due, ended)
        if ended - began > (limit := self._limit()):
            logger.error(
                "sqs-heartbeat: the keeper was late: its last tick took %.1f s. A delay of more "
                "than %s s puts leases at risk. Something blocked the keeper",
                ended - began,
                seconds(limit),
            )
            self._on_late(ended - began)
        return self._due_at

    def _sleep(self, due: float, wakeup: AutoResetEvent) -> None:
        wakeup.wait(due - self._clock())
        overslept = self._clock() - due
        if overslept > max(_STANDSTILL_SECONDS, self._interval):
            self._standstills += 1
            logger.warning(
                "sqs-heartbeat: the process did not run for %.1f s (stopped, suspended or "
                "starved). Leases may have expired in that time",
                overslept,
            )
            self._on_late(overslept)


@dataclass
class _ThreadRun:
    """One thread from its start to its end. Its successor may start before its end."""

    wakeup: AutoResetEvent = field(default_factory=AutoResetEvent)
    has_ended: threading.Event = field(default_factory=threading.Event)
    is_wanted: bool = True
    ident: int | None = None
