"""Locks on files. A lock ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
from io import FileIO


def lock(file: FileIO) -> None:
    """Lock a file until `close`.

    Raises:
        BlockingIOError: Another process has locked it, or this process has, by another open file.
        OSError: The file system has no locks.
    """
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def close(file: FileIO) -> None:
    """Close a file and release its lock."""
    with contextlib.suppress(OSError):
        file.close()
