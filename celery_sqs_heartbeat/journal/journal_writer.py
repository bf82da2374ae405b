"""Writes waiting events as lines, and maintains the folder."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.journal.backlog import Backlog, Make
from celery_sqs_heartbeat.journal.fields import Origin, line_of
from celery_sqs_heartbeat.journal.layout import day_of
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.segments import SegmentWriter, recover
from celery_sqs_heartbeat.journal.shipping import OutageLog, Shipper

logger = logging.getLogger(__name__)

#: How often segments of dead workers are searched for, in seconds. The first search covers all
#: days. Later ones cover two days, because it takes long to list many.
RECOVER_SECONDS = 600.0
#: How often closed segments are uploaded, in seconds.
SHIP_SECONDS = 10.0
_DAY_MICROSECONDS = 86_400_000_000


def wall_clock() -> int:
    """Return microseconds since 1970, in UTC."""
    return time.time_ns() // 1000


class JournalWriter:
    """Everything that a journal's thread does. Nothing here raises if the disk is not available.

    Args:
        clock: Seconds of the keeper's clock.
        wall: Microseconds since 1970.

    Attributes:
        written: Lines written to the journal.
        torn: Unfinished lines of dead workers.
    """

    def __init__(
        self,
        backlog: Backlog,
        writer: SegmentWriter,
        root: Root,
        origin: Origin,
        *,
        clock: Callable[[], float],
        wall: Callable[[], int],
        shipper: Shipper | None = None,
    ) -> None:
        self._backlog = backlog
        self._writer = writer
        self._root = root
        self._origin = origin
        self._clock = clock
        self._wall = wall
        self._shipper = shipper
        self._outage = OutageLog("the journal")
        self._unwritten = 0
        self._overflow = 0
        self._recover_at = self._ship_at = -math.inf
        self.written = 0
        self.torn = 0

    @property
    def dropped(self) -> int:
        """Number of lines lost so far."""
        return self._unwritten + self._backlog.lost + (self._shipper.lost if self._shipper else 0)

    def maintain(self) -> None:
        """Write waiting lines, and do the maintenance that is due."""
        self.write()
        self._writer.rotate_if_old()
        self._note(self._writer.fault)
        now = self._clock()
        if now >= self._recover_at:
            is_first = self._recover_at == -math.inf
            self._recover_at = now + RECOVER_SECONDS
            self._recover(everywhere=is_first)
        if self._shipper is not None and now >= self._ship_at:
            self._ship_at = now + SHIP_SECONDS
            self._shipper.tick()

    def finish(self, until: float) -> None:
        """Write waiting lines, close the segment and upload it, until a monotonic time."""
        self.write()
        self._writer.rotate()
        self._note(self._writer.fault)
        if self._shipper is not None:
            self._shipper.finish(until)

    def write(self) -> None:
        """Write waiting lines."""
        items = self._backlog.take()
        written = 0
        try:
            lines, fault = self._lines(items)
            written = self._writer.write(lines)
            self._note(self._writer.fault or fault)
        finally:
            self.written += written
            self._unwritten += len(items) - written
        if self._backlog.lost > self._overflow:
            self._overflow = self._backlog.lost
            self._note("more events than it can write")
        elif items and written == len(items):
            self._outage.clear(self.dropped)

    def _lines(
        self, items: Sequence[tuple[Make, Any, int]]
    ) -> tuple[list[tuple[int, bytes]], Exception | None]:
        """Return the lines that could be made, and the error of one that could not."""
        # Each time, because the wall clock may be set, or the machine suspended.
        offset = self._wall() - round(self._clock() * 1_000_000)
        self._origin = dataclasses.replace(self._origin, offset=offset)
        lines: list[tuple[int, bytes]] = []
        fault: Exception | None = None
        for make, subject, seq in items:
            try:
                fields = make(subject, seq, self._origin)
                lines.append((fields["ts"], line_of(fields)))
            except Exception as error:
                fault = error
        return lines, fault

    def _note(self, fault: object) -> None:
        if fault is not None:
            self._outage.note(fault)

    def _recover(self, *, everywhere: bool) -> None:
        now = self._wall()
        days = ("*",) if everywhere else (day_of(now - _DAY_MICROSECONDS), day_of(now))
        try:
            found = recover(self._root, days)
        except OSError as error:
            self._note(error)
            return
        self.torn += found.torn
        if found.segments:
            logger.info(
                "sqs-heartbeat: closed %s of dead workers in the journal; "
                "unfinished lines left out: %d",
                counted(found.segments, "segment"),
                found.torn,
            )
