"""The folder in which segments wait until they are shipped."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from celery_sqs_heartbeat.journal.layout import closed_segments
from celery_sqs_heartbeat.journal.packing import unpack


@dataclass(frozen=True, slots=True)
class Spooled:
    """What is in a spool.

    Attributes:
        paths: Of closed segments, in order.
        size: Their bytes.
        lost: Lines that had to go.
    """

    paths: tuple[Path, ...]
    size: int
    lost: int


def spool_root() -> Path:
    """Return the user's own folder among the temporary files."""
    return Path(tempfile.gettempdir()) / f"celery-sqs-heartbeat-journal-{os.getuid()}"


def spool_folder(bucket: str, prefix: str) -> Path:
    """Return the folder for what this host ships to a prefix."""
    return spool_root() / socket.gethostname() / bucket / prefix


def make_spool_root() -> None:
    """Make the user's own folder, unless it is there.

    Raises:
        OSError: It can't be made, or is someone else's: all users may write next to it.
    """
    root = spool_root()
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{root} is not a folder of this user's")


def shrink(folder: Path, limit: int) -> Spooled:
    """Remove the oldest closed segments of a spool that holds more than `limit` bytes."""
    found: list[tuple[Path, os.stat_result]] = []
    for path in closed_segments(folder):
        # Unless another worker has shipped it meanwhile.
        with contextlib.suppress(OSError):
            found.append((path, path.stat()))
    size = sum(status.st_size for _, status in found)
    lost, gone = 0, set[Path]()
    for path, status in sorted(found, key=lambda each: each[1].st_mtime_ns):
        if size <= limit:
            break
        with contextlib.suppress(OSError):
            lines = sum(1 for _ in unpack(path))
            path.unlink()
            lost += lines
        size -= status.st_size
        gone.add(path)
    return Spooled(tuple(path for path, _ in found if path not in gone), size, lost)
