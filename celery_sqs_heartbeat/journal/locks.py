"""Locks on files, which end with the process that has them, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
from io import FileIO


def lock(file: FileIO) -> None:
    """Lock a file until `close`.

    Raises:
        BlockingIOError: Another process has it locked, or another open file of this one.
        OSError: The file system has no locks.
    """
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def close(file: FileIO) -> None:
    """Close a file and end its lock."""
    with contextlib.suppress(OSError):
        file.close()
