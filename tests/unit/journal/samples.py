"""Events, lines and disks for tests of the journal."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import zstandard
from botocore.exceptions import EndpointConnectionError

from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.journal.fields import Origin
from celery_sqs_heartbeat.journal.folder import Root
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from tests.support.waiting import PATIENCE

#: 2026-03-14 15:09:26 UTC, in microseconds.
WALL = 1_773_500_966_000_000
DAY = "2026-03-14"
#: The worker's start by the keeper's clock, in seconds.
STARTED = 1_000.0
DEAD = EndpointConnectionError(endpoint_url="https://s3")
ORIGIN = Origin(wid="0123456789ab", started_at=STARTED, offset=WALL - 1_000_000_000)


def event_of(kind: EventKind = EventKind.MESSAGE_RECEIVED, **values: Any) -> Event:
    """Return an event 2.5 s after the worker's start."""
    return Event(
        **{
            "kind": kind,
            "at": STARTED + 2.5,
            "queue_url": "https://sqs.eu-west-1.amazonaws.com/123456789012/work",
            "message_id": "m-1",
            "task": "proj.add",
            "task_id": "t-1",
            "receive_count": 2,
            "slack": 20.25,
            "receipt_handle": "handle-1",
            "visibility_timeout": 30,
            "held_for": 0.5,
            **values,
        }
    )


def answered(kind: EventKind, action: Action, outcome: Outcome, **values: Any) -> Event:
    """Return an event that results from a call with four entries."""
    call = {"action": action, "outcome": outcome, "call_number": 7, "batch": 4, "seconds": 0.012}
    return event_of(kind, **call, **values)


@dataclass
class Clocks:
    """A monotonic clock and a wall clock that tests set forward."""

    now: float = STARTED
    offset: int = ORIGIN.offset

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.offset / 1_000_000


def journal_at(target: Path | str, clocks: Clocks | None = None, **options: Any) -> Journal:
    """Return a journal that is not started: the test calls its steps."""
    clocks = clocks or Clocks()
    return Journal(str(target), clock=clocks.clock, wall=clocks.wall, **options)


def run_journal(target: Path | str, **options: Any) -> Journal:
    """Run a journal, which recovers and uploads what it finds, and records one event."""
    journal = journal_at(target, **options)
    journal.start(WorkerInfo())
    journal(event_of())
    journal.close(PATIENCE)
    return journal


class Bucket:
    """The part of an S3 client that a shipper uses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: list[Exception] = []
        self.is_answering = True
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0
        self.before_put: Callable[[], object] = lambda: None

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self.calls += 1
        self.before_put()
        self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        self.objects[f"{Bucket}/{Key}"] = Body
        if not self.is_answering:
            raise DEAD

    @property
    def text(self) -> bytes:
        """All lines of all objects."""
        return b"".join(map(zstandard.decompress, self.objects.values()))


@dataclass
class Disk:
    """Makes files that take only `room` more bytes, all together, in place of `folder.FileIO`."""

    room: float = float("inf")

    def __call__(self, descriptor: int, mode: str = "rb") -> FileIO:
        disk = self

        class File(FileIO):
            def write(self, data: Any) -> int:
                if not disk.room:
                    raise OSError(errno.ENOSPC, "the disk does not want to")
                part = bytes(data)[: int(min(disk.room, 1 << 30))]
                disk.room -= len(part)
                return super().write(part)

        return File(descriptor, mode)


def fail(error: OSError) -> None:
    """Raise an error that no test expects."""
    raise error


def own(folder: Path) -> Root:
    """Return the root of a journal for a worker that writes to this folder."""
    return Root(folder)


def files_in(folder: Path) -> list[str]:
    """Return all files in a folder, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def frames_of(path: Path) -> list[bytes]:
    """Return the frames of a closed segment, each read on its own."""
    data, frames = path.read_bytes(), []
    while data:
        reader = zstandard.ZstdDecompressor().decompressobj()
        frames.append(reader.decompress(data))
        assert reader.eof
        data = reader.unused_data
    return frames
