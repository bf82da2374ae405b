"""How every process of a worker finds the worker's table of leases.

Forked processes inherit it. Others open it by a path. On Linux that is the path of the worker's own
open descriptor: no cleaner of temporary files removes it, and no file is left behind. billiard's
processes inherit only the descriptors that it names itself.
"""

from __future__ import annotations

import atexit
import os
from mmap import mmap

from celery_sqs_heartbeat.current.sharedfile import SharedFile
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.errors import NoLease, SqsHeartbeatError

#: Names the path of the table to pool processes that are not forked.
VARIABLE = "CELERY_SQS_HEARTBEAT_TABLE"
#: A table of 1.7 MB, of which the system allocates only what is written. The number of held tasks
#: with an ETA has no limit.
LEAST_PLACES = 16_384
#: With at most a quarter of its places taken, a table has a place for every lease, see
#: `table.REACH`.
PLACES_A_LEASE = 4

_table: Table | None = None
_file: SharedFile | None = None
_pid = 0


def share_table(leases: int) -> Table:
    """Return a table of leases that this process's children, and its keeper, can read and write.

    Args:
        leases: The most messages the worker holds at once; 0 for no limit.

    Raises:
        SqsHeartbeatError: The system has no memory for it.
    """
    global _table, _file, _pid
    unshare_table()
    # In a forked process these are still the parent's.
    _file, _pid = None, os.getpid()
    size = Table.size_for(max(LEAST_PLACES, PLACES_A_LEASE * leases))
    try:
        _file = SharedFile(size)
    except OSError as error:
        raise SqsHeartbeatError(
            f"no memory to share a table of leases with the keeper, {size:,} bytes: {error}: "
            "free some memory, or space in /dev/shm"
        ) from error
    os.environ[VARIABLE] = _file.path
    atexit.register(unshare_table)
    _table = Table(_file.memory)
    return _table


def shared_descriptor() -> int:
    """Return the descriptor of the table that this process shares, for its keeper."""
    assert _file is not None
    return _file.descriptor


def unshare_table() -> None:
    """Stop sharing the table. Does nothing in a forked child, or if there is no table."""
    global _table, _file
    if _pid != os.getpid():
        return
    _table = None
    if _file is not None:
        atexit.unregister(unshare_table)
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
            with open(path, "r+b") as file:
                _table = Table(mmap(file.fileno(), 0))
        except (OSError, ValueError) as error:
            raise NoLease(f"the worker's table of leases can't be read: {error}") from None
    return _table
