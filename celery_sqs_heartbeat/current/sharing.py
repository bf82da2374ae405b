"""How every process of a worker finds the worker's table of leases.

Forked processes inherit it. Others open it by a path. On Linux that is the path of the worker's own
open descriptor: no cleaner of temporary files removes it, and no file is left behind. billiard's
processes inherit only the descriptors that it names itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from mmap import mmap

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
#: The path to a file without a name: a descriptor of the process that has it open.
DESCRIPTORS = "/proc/{pid}/fd"
#: For files that need a name: memory on Linux, which no cleaner of temporary files searches.
SHARED_MEMORY = "/dev/shm"  # noqa: S108
_PREFIX = "celery-sqs-heartbeat-"

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


class SharedFile:
    """`size` bytes for this user alone, until `close` or the end of this process.

    A killed process leaves the file behind only if the file needs a name.

    Attributes:
        path: For other processes, while this one has the file open.
        descriptor: For a process that inherits it.

    Raises:
        OSError: The system has no room for it.
    """

    def __init__(self, size: int) -> None:
        self._is_named = False
        found = _new_nameless()
        if found is None:
            found = _new_named()
            self._is_named = True
        self.descriptor, self.path = found
        try:
            # Write the bytes, do not only set the length: a full disk would kill the worker later.
            _write(self.descriptor, bytes(size))
            self.memory = mmap(self.descriptor, size)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Remove the path. Processes that have the file open keep it."""
        if self._is_named:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        os.close(self.descriptor)


def _new_nameless() -> tuple[int, str] | None:
    """Return a descriptor and its path; None if others can't open it by that path."""
    if not hasattr(os, "memfd_create"):
        return None
    folder = DESCRIPTORS.format(pid=os.getpid())
    try:
        # Root owns it if others may not inspect this process, which may have changed its user.
        if os.stat(folder).st_uid != os.geteuid():
            return None
        descriptor = os.memfd_create(f"{_PREFIX}table")
        os.fchmod(descriptor, 0o600)
    except OSError:
        return None
    return descriptor, f"{folder}/{descriptor}"


def _new_named() -> tuple[int, str]:
    folder = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None
    return tempfile.mkstemp(prefix=_PREFIX, dir=folder)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
