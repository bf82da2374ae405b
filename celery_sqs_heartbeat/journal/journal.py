"""Accepts events without delay, and writes them on its own thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.common.journal_facts import Identity, JournalStats, WorkerInfo
from celery_sqs_heartbeat.journal.backlog import Backlog
from celery_sqs_heartbeat.journal.fields import (
    KEEPER_LATE,
    WORKER_STARTED,
    WORKER_STOPPED,
    Origin,
    fields_of,
    fields_of_start,
    microseconds,
)
from celery_sqs_heartbeat.journal.journal_writer import JournalWriter
from celery_sqs_heartbeat.journal.shipping import Shipper
from celery_sqs_heartbeat.leases.events import Event

logger = logging.getLogger(__name__)

#: How often waiting lines are written, in seconds. A crash loses at most the last second.
WRITE_SECONDS = 0.5


class Journal:
    """An observer that records a keeper's events. `open_journal` makes one.

    It costs its caller a few microseconds. Nothing raises, and only `close` waits for the disk,
    at most for its timeout.
    """

    def __init__(
        self,
        backlog: Backlog,
        scribe: JournalWriter,
        identity: Identity,
        clock: Callable[[], float],
        shipper: Shipper | None = None,
    ) -> None:
        self._backlog = backlog
        self._writer = scribe
        self._identity = identity
        self._clock = clock
        self._shipper = shipper
        self._is_open = True
        self._is_started = False
        self._over = threading.Event()
        self._is_faulty = False
        self._until = 0.0

    def __call__(self, event: Event) -> None:
        """Record an event."""
        if self._is_open:
            self._backlog.put(fields_of, event)

    def note_late(self, seconds: float) -> None:
        """Record that the keeper was delayed by this time."""
        if self._is_open:
            self._backlog.put(self._late, (self._clock(), seconds))

    def start(self, info: WorkerInfo, *, is_first: bool = True) -> None:
        """Start the thread and write the worker's first line. Call it before there are events.

        Args:
            is_first: Whether no other process has written that line before, for the same worker.
        """
        if self._is_started:
            return
        self._is_started = True
        if is_first:
            self._backlog.put(self._started, (self._clock(), info))
        try:
            threading.Thread(target=self._live, name="sqs-heartbeat-journal", daemon=True).start()
        except RuntimeError as error:
            logger.warning(
                "sqs-heartbeat: can't start a thread for the journal (%s): it stays empty", error
            )
            self._is_open = False

    def close(self, timeout: float = 5.0, *, has_stopped: bool = True) -> None:
        """Write what is left, close the segment and upload it, within a timeout in seconds.

        Args:
            has_stopped: Whether the worker has stopped normally, and was not killed.
        """
        if not (self._is_open and self._is_started):
            return
        if has_stopped:
            self._backlog.put(self._stopped, self._clock())
        self._until = time.monotonic() + timeout
        self._is_open = False
        self._backlog.wakeup.set()
        if not self._over.wait(timeout):
            logger.warning("sqs-heartbeat: the journal could not finish within %g s", timeout)
        if self._shipper is not None:
            self._shipper.close()

    def step(self) -> None:
        """Write waiting lines, and maintain the folder.

        The thread does only this until it is closed. It is public for other loops, such as a
        simulation's, which start no thread.
        """
        self._guard(self._writer.maintain)

    @property
    def stats(self) -> JournalStats:
        """The numbers of its lines so far."""
        scribe, shipper = self._writer, self._shipper
        return JournalStats(
            written=scribe.written,
            dropped=scribe.dropped,
            torn=scribe.torn,
            shipped=shipper.shipped if shipper else 0,
            spooled_bytes=shipper.spooled.size if shipper else 0,
        )

    def _live(self) -> None:
        try:
            self.step()
            while self._is_open:
                self._backlog.wakeup.wait(WRITE_SECONDS)
                self.step()
            self._guard(lambda: self._writer.finish(self._until))
        finally:
            self._over.set()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
            self._is_faulty = False
        except Exception:
            if not self._is_faulty:
                logger.exception(
                    "sqs-heartbeat: the journal failed with a bug of its own; it continues"
                )
            self._is_faulty = True

    def _started(self, told: tuple[float, WorkerInfo], seq: int, origin: Origin) -> dict[str, Any]:
        at, info = told
        fields = origin.stamp(WORKER_STARTED, at, seq)
        return fields | self._lost() | fields_of_start(self._identity, info)

    def _late(self, told: tuple[float, float], seq: int, origin: Origin) -> dict[str, Any]:
        at, seconds = told
        fields = origin.stamp(KEEPER_LATE, at, seq)
        return fields | self._lost() | {"late_us": microseconds(seconds) or 0}

    def _stopped(self, at: float, seq: int, origin: Origin) -> dict[str, Any]:
        return origin.stamp(WORKER_STOPPED, at, seq) | self._lost()

    def _lost(self) -> dict[str, int]:
        dropped = self._writer.dropped
        return {"dropped": dropped} if dropped else {}
