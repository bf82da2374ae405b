"""Where every process of a worker finds the worker's table of leases."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import tempfile
from mmap import ACCESS_READ, mmap

from celery_sqs_heartbeat.current.board import LeaseBoard
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.errors import NoLease

logger = logging.getLogger(__name__)

#: Names the table's file to pool processes that are not forked.
VARIABLE = "CELERY_SQS_HEARTBEAT_TABLE"
#: A table of 1 MB, of which the system gives what is written to. Tasks with an ETA are
#: held without bound.
LEAST_PLACES = 16_384
#: With a quarter of its places taken a table has one for every lease, see `table.REACH`.
PLACES_A_LEASE = 4

_table: Table | None = None
_path: str | None = None
_pid = 0


def share_board(leases: int, *, in_file: bool) -> LeaseBoard | None:
    """Return a board that this process's children can read; None where that fails.

    Args:
        leases: The most messages the worker holds at once; 0 for no bound.
        in_file: Whether children start as interpreters of their own, and can't inherit it.
            The file is the user's alone, and only a killed worker leaves it behind.
    """
    global _table, _path, _pid
    unshare_board()
    # A forked process has those of its parent until now.
    _path, _pid = None, os.getpid()
    size = Table.size_for(max(LEAST_PLACES, PLACES_A_LEASE * leases))
    try:
        memory = _new_file(size) if in_file else mmap(-1, size)
    except OSError as error:
        logger.warning(
            "sqs-heartbeat: no memory to share for %d leases: current_lease will be none: %s",
            leases,
            error,
        )
        return None
    _table = Table(memory)
    return LeaseBoard(_table)


def unshare_board() -> None:
    """Take the board back. Does nothing in a forked child, nor where there is none."""
    global _table, _path
    if _pid != os.getpid():
        return
    _table = None
    if _path is not None:
        atexit.unregister(unshare_board)
        os.environ.pop(VARIABLE, None)
        with contextlib.suppress(OSError):
            os.unlink(_path)
        _path = None


def shared_table() -> Table:
    """Return the table of this process's worker.

    Raises:
        NoLease: The worker has none.
    """
    global _table
    if _table is None:
        path = os.environ.get(VARIABLE)
        if path is None:
            raise NoLease("the worker runs without --heartbeat-sqs")
        try:
            with open(path, "rb") as file:
                _table = Table(mmap(file.fileno(), 0, access=ACCESS_READ))
        except (OSError, ValueError) as error:
            raise NoLease(f"the worker's table of leases can't be read: {error}") from None
    return _table


def _new_file(size: int) -> mmap:
    global _path
    descriptor, path = tempfile.mkstemp(prefix="celery-sqs-heartbeat-")
    with open(descriptor, "r+b") as file:
        try:
            # Written, not just made so long: a full disk would end the worker later.
            file.write(bytes(size))
            file.flush()
            memory = mmap(file.fileno(), size)
        except OSError:
            os.unlink(path)
            raise
    _path = os.environ[VARIABLE] = path
    atexit.register(unshare_board)
    return memory
