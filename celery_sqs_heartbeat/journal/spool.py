"""The folder in which segments wait until they are uploaded."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from celery_sqs_heartbeat.journal.folders import refuse_others
from celery_sqs_heartbeat.journal.layout import CLOSED_SUFFIX, ordered
from celery_sqs_heartbeat.journal.packing import lines_of
from celery_sqs_heartbeat.journal.rooted import Root


@dataclass(frozen=True, slots=True)
class Spooled:
    """The content of a spool.

    Attributes:
        paths: Paths of closed segments relative to the spool, in order.
        size: Their size in bytes.
        lost: Lines that were removed.
    """

    paths: tuple[Path, ...]
    size: int
    lost: int


def own_spool(bucket: str, prefix: str) -> Root:
    """Return the spool of this user's workers on this host for a prefix."""
    path = Path(tempfile.gettempdir()) / f"celery-sqs-heartbeat-journal-{os.geteuid()}"
    below = (socket.gethostname(), bucket, *prefix.split("/"))
    return Root(path, tuple(filter(None, below)), is_private=True)


def shrink(root: Root, limit: int) -> Spooled:
    """Remove the oldest closed segments of a spool that has more than `limit` bytes.

    Raises:
        OSError: The root can't be trusted or entered.
    """
    found: dict[Path, os.stat_result] = {}
    for folder, path in root.segments(CLOSED_SUFFIX):
        # It fails if another worker has uploaded the segment meanwhile.
        with _noting(root):
            status = folder.look(path.name)
            refuse_others(status, root.folder / path)
            found[path] = status
    size = sum(status.st_size for status in found.values())
    lost, gone = 0, set[Path]()
    for path, status in sorted(found.items(), key=lambda each: each[1].st_mtime_ns):
        if size <= limit:
            break
        with _noting(root), root.opened(*path.parent.parts) as folder:
            with folder.open(path.name) as file:
                lines = sum(1 for _ in lines_of(file))
            folder.remove(path.name)
            lost += lines
        size -= status.st_size
        gone.add(path)
    return Spooled(tuple(ordered(found.keys() - gone)), size, lost)


@contextlib.contextmanager
def _noting(root: Root) -> Iterator[None]:
    """Skip what can't be used."""
    try:
        yield
    except OSError as error:
        root.note(error)
