"""Memory that other processes of this user open by a path."""

from __future__ import annotations

import contextlib
import os
import tempfile
from mmap import mmap

#: The path to a file without a name: a descriptor of the process that has it open.
DESCRIPTORS = "/proc/{pid}/fd"
#: For files that need a name: memory on Linux, which no cleaner of temporary files searches.
SHARED_MEMORY = "/dev/shm"  # noqa: S108
_PREFIX = "celery-sqs-heartbeat-"


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
