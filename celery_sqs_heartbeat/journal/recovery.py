"""Closes the segments of workers that died."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from celery_sqs_heartbeat.journal import locks
from celery_sqs_heartbeat.journal.layout import closed_path, open_segments
from celery_sqs_heartbeat.journal.packing import pack


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery did.

    Attributes:
        segments: That were closed.
        torn: Lines that were kept out, as their writer had not finished them.
    """

    segments: int = 0
    torn: int = 0


def recover(folder: Path, days: Iterable[str] = ("*",)) -> Recovered:
    """Close every open segment that nobody has locked: its writer is no more.

    One that can't be closed stays as it is; so does everything where the file system has
    no locks, as nobody can tell there who is alive.

    Args:
        days: Look at these only: a folder of many days takes long to list.
    """
    segments = torn = 0
    for path in [path for day in days for path in open_segments(folder, day)]:
        with contextlib.suppress(OSError):
            count = _close(path)
            segments += 1
            torn += count
    return Recovered(segments, torn)


def _close(path: Path) -> int:
    file = FileIO(path, "rb+")
    try:
        locks.lock(file)
        # Another may have closed it between the two.
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            raise FileNotFoundError(path)
        torn = pack(file, closed_path(path))
        path.unlink()
        return torn
    finally:
        locks.close(file)
