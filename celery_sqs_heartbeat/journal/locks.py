"""Locks on files, which end with the process that has them, however it ends.

A lock belongs to the open file, and a forked child has that open, too: a pool's process
that outlives a killed worker would keep the worker's. So children close what is locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from io import FileIO

_locked: set[FileIO] = set()


def lock(file: FileIO) -> None:
    """Lock a file until `close`.

    Raises:
        BlockingIOError: Another process has it locked, or another open file of this one.
        OSError: The file system has no locks.
    """
    _locked.add(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _locked.discard(file)
        raise


def close(file: FileIO) -> None:
    """Close a file and end its lock."""
    _locked.discard(file)
    with contextlib.suppress(OSError):
        file.close()


def _close_in_child() -> None:
    for file in list(_locked):
        close(file)


os.register_at_fork(after_in_child=_close_in_child)
