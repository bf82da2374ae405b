"""The thread that makes a keeper's rounds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from celery_sqs_heartbeat.common.auto_reset_event import AutoResetEvent

logger = logging.getLogger(__name__)

#: Pause after an unforeseen fault of the keeper's own, in seconds.
_FAULT_PAUSE = 0.1
#: A sleep that took so many seconds longer than it should is a standstill, however short
#: it was to be: a busy machine is late by less.
STANDSTILL_SECONDS = 1.0


class TickThread:
    """Calls a step again and again, each time when the last one said.

    Nothing here takes a lock that a step may hold: a thread that hangs can be asked about.

    Args:
        step: Does what is due and returns when to call it again, in seconds of `clock`.
        interval: The longest sleep in seconds, as far as `step` keeps to it.
        clock: Monotonic seconds.
        on_late: Told of a standstill, in seconds, by the thread.

    Attributes:
        standstills: How often it slept for much longer than it meant to.
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
        """Whether it was started and not stopped: then it runs, unless it has died."""
        return self._run is not None and self._run.is_wanted

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._run is not None and not self._run.has_ended.is_set()

    @property
    def cause_of_death(self) -> BaseException | None:
        """What ended it, when it died."""
        return self._run.cause if self._run is not None else None

    def start(self) -> None:
        """Start the thread, or another in the place of one that has died.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        # Its first round is due now, however long the thread may take to begin it.
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
        """Wait for its end, for so many seconds at the most; not when called by itself."""
        run = self._run
        if run is not None and run.ident != threading.get_ident():
            run.has_ended.wait(timeout)

    def wake(self) -> None:
        """Have the next step made now."""
        if self._run is not None:
            self._run.wakeup.set()

    def tick_age(self, now: float) -> float | None:
        """Return how long ago its last round began, in seconds; None before the first."""
        return None if self._ticked_at is None else now - self._ticked_at

    def overdue(self, now: float) -> float:
        """Return for how many seconds its next round should have begun; negative before."""
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
    """One thread from its start to its end, which may come after its successor's start."""

    wakeup: AutoResetEvent = field(default_factory=AutoResetEvent)
    has_ended: threading.Event = field(default_factory=threading.Event)
    is_wanted: bool = True
    cause: BaseException | None = None
    ident: int | None = None
