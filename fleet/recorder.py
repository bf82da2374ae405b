"""Writes one worker's journal, with real records and the times of the fake clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.journal.fields import (
    KEEPER_LATE,
    WORKER_STARTED,
    WORKER_STOPPED,
    Origin,
    fields_of,
    fields_of_start,
    line_of,
    microseconds,
)
from celery_sqs_heartbeat.journal.folder import Root, SegmentWriter
from celery_sqs_heartbeat.leases.events import Event


def fail(error: OSError) -> None:
    """Give up, because a fleet's journal is worth nothing without all of its lines."""
    raise error


#: How many lines are written together.
_BATCH = 500


class Recorder:
    """A worker's journal.

    Args:
        wall: The Unix time, in microseconds, of the clock's zero by the worker's wall clock.
    """

    def __init__(
        self, folder: Path, identity: Identity, clock: Callable[[], float], wall: int
    ) -> None:
        self.wid = identity.wid
        self.lines = 0
        self._identity = identity
        self._clock = clock
        self._origin = Origin(wid=identity.wid, started_at=clock(), offset=wall)
        self._writer = SegmentWriter(Root(folder), identity.wid, clock, fail)
        self._waiting: list[tuple[int, bytes]] = []

    def __call__(self, event: Event) -> None:
        """Write an event of the keeper."""
        self._put(fields_of(event, self._next(), self._origin))

    def start(self, info: WorkerInfo) -> None:
        """Write the worker's first line."""
        stamp = self._origin.stamp(WORKER_STARTED, self._clock(), self._next())
        self._put(stamp | fields_of_start(self._identity, info))

    def note_late(self, seconds: float) -> None:
        """Write that the keeper was late."""
        stamp = self._origin.stamp(KEEPER_LATE, self._clock(), self._next())
        self._put(stamp | {"late_us": microseconds(seconds) or 0})

    def stop(self) -> None:
        """Write the worker's last line."""
        self._put(self._origin.stamp(WORKER_STOPPED, self._clock(), self._next()))

    def close(self) -> None:
        """Finish the files, also those of a killed worker."""
        self._flush()
        self._writer.close()

    def _next(self) -> int:
        self.lines += 1
        return self.lines

    def _put(self, fields: dict[str, Any]) -> None:
        self._waiting.append((fields["ts"], line_of(fields)))
        if len(self._waiting) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._writer.write(self._waiting)
        self._waiting = []
