"""The thread that watches a keeper's thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from celery_sqs_heartbeat.common.wording import seconds
from celery_sqs_heartbeat.keeper.tick_thread import STANDSTILL_SECONDS, TickThread
from celery_sqs_heartbeat.leases.health import KeeperHealth

logger = logging.getLogger(__name__)

#: Interval between two checks, in seconds.
WATCH_SECONDS = 1.0


class Watchdog:
    """Replaces a keeper's thread that has died, and reports one that is late.

    Args:
        ticks: The thread. `revive` starts it again.
        revive: Starts the thread again, unless it was stopped in the meantime; returns whether
            it did. May raise anything.
        limit: Returns how late a tick may be, in seconds.
        clock: Monotonic seconds.
        on_late: Called once for each delay, with the seconds by which the tick is late.
    """

    def __init__(
        self,
        ticks: TickThread,
        revive: Callable[[], bool],
        limit: Callable[[], float],
        clock: Callable[[], float],
        on_late: Callable[[float], None],
    ) -> None:
        self._ticks = ticks
        self._on_late = on_late
        self._revive = revive
        self._limit = limit
        self._clock = clock
        self._has_ended = threading.Event()
        self._late_since: float | None = None
        self._replaced = 0

    @property
    def health(self) -> KeeperHealth:
        """The thread's health now."""
        now = self._clock()
        return KeeperHealth(
            alive=self._ticks.is_alive,
            last_tick_age=self._ticks.tick_age(now),
            late=self._ticks.is_wanted and self._ticks.overdue(now) > self._limit(),
            replaced=self._replaced,
            standstills=self._ticks.standstills,
        )

    def start(self) -> None:
        """Check once every `WATCH_SECONDS`, on a separate thread.

        Raises:
            RuntimeError: The system refuses another thread.
        """
        has_ended = self._has_ended = threading.Event()
        threading.Thread(
            target=self._watch, args=(has_ended,), name="sqs-heartbeat-watch", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop checking, without waiting for the watchdog's thread to end."""
        self._has_ended.set()

    def check(self) -> None:
        """Check the thread once: replace it if it has died, and report it if it is late."""
        if not self._ticks.is_wanted:
            return
        if not self._ticks.is_alive:
            self._replace()
            return
        now = self._clock()
        overdue, limit = self._ticks.overdue(now), self._limit()
        if self._late_since is None and overdue > limit:
            self._late_since = now - overdue
            logger.error(
                "sqs-heartbeat: the keeper is late: its last tick began %.1f s ago. A delay of "
                "more than %s s puts leases at risk. Something blocks the keeper",
                self._ticks.tick_age(now),
                seconds(limit),
            )
            self._on_late(overdue)
        elif self._late_since is not None and overdue <= limit:
            logger.warning(
                "sqs-heartbeat: the keeper is on time again, after %.1f s",
                now - self._late_since,
            )
            self._late_since = None

    def _replace(self) -> None:
        cause = self._ticks.cause_of_death
        if self._revive():
            logger.error(
                "sqs-heartbeat: the keeper's thread had died of %r and was replaced. The new "
                "thread keeps its leases",
                cause,
                exc_info=cause,
            )
            self._replaced += 1

    def _watch(self, has_ended: threading.Event) -> None:
        while True:
            began = self._clock()
            if has_ended.wait(WATCH_SECONDS):
                return
            if self._clock() - began > WATCH_SECONDS + STANDSTILL_SECONDS:
                # The watchdog overslept, so the whole process did not run. The keeper reports that.
                continue
            try:
                self.check()
            except Exception:
                logger.exception(
                    "sqs-heartbeat: unexpected error in the keeper's watchdog. It continues"
                )
