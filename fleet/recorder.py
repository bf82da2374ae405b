"""Writes one worker's journal, with real records and the times of the fake clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.journal.backlog import Origin, microseconds, record_of
from celery_sqs_heartbeat.journal.journal_events import (
    KEEPER_LATE,
    WORKER_STARTED,
    WORKER_STOPPED,
    KeeperLate,
    Record,
    WorkerStarted,
    WorkerStopped,
)
from celery_sqs_heartbeat.journal.packing import line_of
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.segments import Rotation, SegmentWriter
from celery_sqs_heartbeat.leases.events import Event

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
        self._writer = SegmentWriter(
            Root(folder, is_private=False), identity.wid, Rotation(max_age=3600.0), clock
        )
        self._waiting: list[tuple[int, bytes]] = []

    def __call__(self, event: Event) -> None:
        """Write an event of the keeper."""
        self._put(record_of(event, self._next(), self._origin))

    def start(self, info: WorkerInfo) -> None:
        """Write the worker's first line."""
        self._put(
            WorkerStarted(
                **self._origin.stamp(WORKER_STARTED, self._clock(), self._next()),
                host=self._identity.host,
                pid=self._identity.pid,
                boot=self._identity.boot,
                node=info.node,
                pool=info.pool,
                concurrency=info.concurrency,
                settings=dict(info.settings),
                versions=dict(info.versions),
            )
        )

    def note_late(self, seconds: float) -> None:
        """Write that the keeper was late."""
        stamp = self._origin.stamp(KEEPER_LATE, self._clock(), self._next())
        self._put(KeeperLate(**stamp, late_us=microseconds(seconds) or 0))

    def stop(self) -> None:
        """Write the worker's last line."""
        self._put(WorkerStopped(**self._origin.stamp(WORKER_STOPPED, self._clock(), self._next())))

    def close(self) -> None:
        """Finish the files, also those of a killed worker."""
        self._flush()
        self._writer.rotate()

    def _next(self) -> int:
        self.lines += 1
        return self.lines

    def _put(self, record: Record) -> None:
        self._waiting.append((record.ts, line_of(record)))
        if len(self._waiting) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._writer.write(self._waiting)
        self._writer.rotate_if_old()
        self._waiting = []
        if self._writer.fault is not None:
            raise self._writer.fault
