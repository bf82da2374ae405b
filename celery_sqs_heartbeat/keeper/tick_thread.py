"""The thread that makes a keeper's ticks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from celery_sqs_heartbeat.common.auto_reset_event import AutoResetEvent

logger = logging.getLogger(__name__)

#: Pause after an unexpected error in the keeper, in seconds.
_FAULT_PAUSE = 0.1
#: A sleep that takes this many seconds longer than planned is a standstill, however short it was
#: planned. A busy machine delays a sleep by less.
STANDSTILL_SECONDS = 1.0


class TickThread:
    """Calls a step repeatedly, each time at the moment that the last step returned.

    Nothing here takes a lock that a step may hold. So the methods work even if the thread hangs.

    Args:
        step: Does what is due and returns when to call it again, in seconds of `clock`.
        interval: The longest sleep in seconds, if `step` respects it.
        clock: Monotonic seconds.
        on_late: Called by the thread with the length of a standstill, in seconds.

    Attributes:
        standstills: How often it slept for much longer than planned.
    """

    def __init__(
        self,
        step: Callable[[], float],
        interval: float,
        clock: Callable[[], float],
        on_late: Callable[[float], None],
    ) -> None:
        self._step = step
        self._on_late = on_late
        self._slack = max(STANDSTILL_SECONDS, interval)
        self._clock = clock
        self._run: _ThreadRun | None = None
        self._ticked_at: float | None = None
        self._sleeps = 0.0
        self.standstills = 0

    @property
    def is_wanted(self) -> bool:
        """Whether it was started and not stopped. It then runs, unless it has died."""
        return self._run is not None and self._run.is_wanted

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._run is not None and not self._run.has_ended.is_set()

    @property
    def cause_of_death(self) -> BaseException | None:
        """The exception that it died of, if any."""
        return self._run.cause if self._run is not None else None

    def start(self) -> None:
        """Start the thread, or a replacement for one that has died.

        Raises:
            RuntimeError: The system refuses another thread.
        """
        # Its first tick is due now, however long the thread may take to begin it.
        self._ticked_at, self._sleeps = self._clock(), 0.0
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

    def tick_age(self, now: float) -> float | None:
        """Return how long ago its last tick began, in seconds; None before the first."""
        return None if self._ticked_at is None else now - self._ticked_at

    def overdue(self, now: float) -> float:
        """Return how long its next tick has been due, in seconds; negative before it is due."""
        return 0.0 if self._ticked_at is None else now - self._ticked_at - self._sleeps

    def _loop(self, run: _ThreadRun) -> None:
        run.ident = threading.get_ident()
        try:
            while run.is_wanted:
                self._tick(run.wakeup)
        except BaseException as error:
            run.cause = error
        finally:
            run.has_ended.set()

    def _tick(self, wakeup: AutoResetEvent) -> None:
        self._ticked_at, self._sleeps = self._clock(), 0.0
        try:
            due = self._step()
        except Exception:
            logger.exception("sqs-heartbeat: unexpected error in the keeper. It continues")
            time.sleep(_FAULT_PAUSE)
            return
        fell_asleep = self._clock()
        self._sleeps = max(0.0, due - fell_asleep)
        wakeup.wait(self._sleeps)
        overslept = self._clock() - fell_asleep - self._sleeps
        if overslept > self._slack:
            self.standstills += 1
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
    cause: BaseException | None = None
    ident: int | None = None
