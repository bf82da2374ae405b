"""The thread that makes a keeper's rounds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from celery_sqs_heartbeat.common.bell import Bell

logger = logging.getLogger(__name__)

#: Pause after an unforeseen fault of the keeper's own, in seconds.
_FAULT_PAUSE = 0.1
#: A sleep that took so many seconds longer than it should is a standstill, however short
#: it was to be: a busy machine is late by less.
STANDSTILL_SECONDS = 1.0


class RoundsThread:
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
        self._life: _Life | None = None
        self._ticked_at: float | None = None
        self._sleeps = 0.0
        self.standstills = 0

    @property
    def is_wanted(self) -> bool:
        """Whether it was started and not stopped: then it runs, unless it has died."""
        return self._life is not None and self._life.is_wanted

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._life is not None and not self._life.over.is_set()

    @property
    def cause_of_death(self) -> BaseException | None:
        """What ended it, when it died."""
        return self._life.cause if self._life is not None else None

    def start(self) -> None:
        """Start the thread, or another in the place of one that has died.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        # Its first round is due now, however long the thread may take to begin it.
        self._ticked_at, self._sleeps = self._clock(), 0.0
        life = _Life()
        threading.Thread(target=self._live, args=(life,), name="sqs-heartbeat", daemon=True).start()
        self._life = life

    def stop(self) -> None:
        """Let the thread end after its step."""
        if self._life is not None:
            self._life.is_wanted = False
            self._life.bell.ring()

    def join(self, timeout: float) -> None:
        """Wait for its end, for so many seconds at the most; not when called by itself."""
        life = self._life
        if life is not None and life.ident != threading.get_ident():
            life.over.wait(timeout)

    def wake(self) -> None:
        """Have the next step made now."""
        if self._life is not None:
            self._life.bell.ring()

    def tick_age(self, now: float) -> float | None:
        """Return how long ago its last round began, in seconds; None before the first."""
        return None if self._ticked_at is None else now - self._ticked_at

    def overdue(self, now: float) -> float:
        """Return for how many seconds its next round should have begun; negative before."""
        return 0.0 if self._ticked_at is None else now - self._ticked_at - self._sleeps

    def _live(self, life: _Life) -> None:
        life.ident = threading.get_ident()
        try:
            while life.is_wanted:
                self._make_round(life.bell)
        except BaseException as error:
            life.cause = error
        finally:
            life.over.set()

    def _make_round(self, bell: Bell) -> None:
        self._ticked_at, self._sleeps = self._clock(), 0.0
        try:
            due = self._step()
        except Exception:
            logger.exception("sqs-heartbeat: the keeper met a fault of its own; it goes on")
            time.sleep(_FAULT_PAUSE)
            return
        fell_asleep = self._clock()
        self._sleeps = max(0.0, due - fell_asleep)
        bell.wait(self._sleeps)
        overslept = self._clock() - fell_asleep - self._sleeps
        if overslept > self._slack:
            self.standstills += 1
            logger.warning(
                "sqs-heartbeat: the process stood still for %.1f s (stopped, suspended or "
                "starved): leases may have run out meanwhile",
                overslept,
            )
            self._on_late(overslept)


@dataclass
class _Life:
    """One thread from its start to its end, which may come after its successor's start."""

    bell: Bell = field(default_factory=Bell)
    over: threading.Event = field(default_factory=threading.Event)
    is_wanted: bool = True
    cause: BaseException | None = None
    ident: int | None = None
