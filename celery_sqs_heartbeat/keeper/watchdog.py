"""The thread that watches a keeper's thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from celery_sqs_heartbeat.common.wording import seconds
from celery_sqs_heartbeat.keeper.tick_thread import STANDSTILL_SECONDS, TickThread
from celery_sqs_heartbeat.leases.health import KeeperHealth

logger = logging.getLogger(__name__)

#: How often it looks, in seconds.
WATCH_SECONDS = 1.0


class Watchdog:
    """Replaces a keeper's thread that has died, and reports one that is late.

    Args:
        rounds: The thread. It is started again by `revive`.
        revive: Starts the thread again, unless it was stopped meanwhile; returns whether
            it did. May raise anything.
        limit: Returns how late a round may be, in seconds.
        clock: Monotonic seconds.
        on_late: Told once of each time that a round is late, by how many seconds.
    """

    def __init__(
        self,
        rounds: TickThread,
        revive: Callable[[], bool],
        limit: Callable[[], float],
        clock: Callable[[], float],
        on_late: Callable[[float], None],
    ) -> None:
        self._rounds = rounds
        self._on_late = on_late
        self._revive = revive
        self._limit = limit
        self._clock = clock
        self._has_ended = threading.Event()
        self._late_since: float | None = None
        self._replaced = 0

    @property
    def health(self) -> KeeperHealth:
        """How the thread does now."""
        now = self._clock()
        return KeeperHealth(
            alive=self._rounds.is_alive,
            last_tick_age=self._rounds.tick_age(now),
            late=self._rounds.is_wanted and self._rounds.overdue(now) > self._limit(),
            replaced=self._replaced,
            standstills=self._rounds.standstills,
        )

    def start(self) -> None:
        """Look once every `WATCH_SECONDS`, on a thread of its own.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        has_ended = self._has_ended = threading.Event()
        threading.Thread(
            target=self._watch, args=(has_ended,), name="sqs-heartbeat-watch", daemon=True
        ).start()

    def stop(self) -> None:
        """Look no more. Not waited for."""
        self._has_ended.set()

    def check(self) -> None:
        """Look after the thread once."""
        if not self._rounds.is_wanted:
            return
        if not self._rounds.is_alive:
            self._replace()
            return
        now = self._clock()
        overdue, limit = self._rounds.overdue(now), self._limit()
        if self._late_since is None and overdue > limit:
            self._late_since = now - overdue
            logger.error(
                "sqs-heartbeat: the keeper is late: its last tick began %.1f s ago. A delay of "
                "more than %s s puts leases at risk. Something blocks the keeper",
                self._rounds.tick_age(now),
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
        cause = self._rounds.cause_of_death
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
