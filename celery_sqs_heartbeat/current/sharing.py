"""Where every process of a worker finds the worker's table of leases.

Forked processes inherit it. Others find it by a path: that of the worker's own open descriptor
where the system has such paths (Linux), as no cleaner of temporary files takes that away, and none
is left behind. Processes of billiard inherit no descriptor but those that it names itself.
"""

from __future__ import annotations

import atexit
import logging
import os
from mmap import ACCESS_READ, mmap

from celery_sqs_heartbeat.current.board import LeaseBoard
from celery_sqs_heartbeat.current.sharedfile import SharedFile
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.errors import NoLease

logger = logging.getLogger(__name__)

#: Names the path of the table to pool processes that are not forked.
VARIABLE = "CELERY_SQS_HEARTBEAT_TABLE"
#: A table of 1 MB, of which the system gives what is written to. Tasks with an ETA are
#: held without bound.
LEAST_PLACES = 16_384
#: With a quarter of its places taken a table has one for every lease, see `table.REACH`.
PLACES_A_LEASE = 4

_table: Table | None = None
_file: SharedFile | None = None
_pid = 0


def share_board(leases: int, *, in_file: bool) -> LeaseBoard | None:
    """Return a board that this process's children can read; None where that fails.

    Args:
        leases: The most messages the worker holds at once; 0 for no bound.
        in_file: Whether children start as interpreters of their own, and can't inherit it.
    """
    global _table, _file, _pid
    unshare_board()
    # A forked process has those of its parent until now.
    _file, _pid = None, os.getpid()
    size = Table.size_for(max(LEAST_PLACES, PLACES_A_LEASE * leases))
    try:
        memory = _share_file(size) if in_file else mmap(-1, size)
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
    global _table, _file
    if _pid != os.getpid():
        return
    _table = None
    if _file is not None:
        atexit.unregister(unshare_board)
        os.environ.pop(VARIABLE, None)
        _file.close()
        _file = None


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


def _share_file(size: int) -> mmap:
    global _file
    _file = SharedFile(size)
    os.environ[VARIABLE] = _file.path
    atexit.register(unshare_board)
    return _file.memory
