"""One segment of a journal, while it is written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from celery_sqs_heartbeat.journal import locks
from celery_sqs_heartbeat.journal.folders import Folder
from celery_sqs_heartbeat.journal.layout import closed_name, hidden
from celery_sqs_heartbeat.journal.packing import Opener, pack, write_all
from celery_sqs_heartbeat.journal.rooted import Root

#: How often to try to make the folders. The worker that uploads their last segment removes them.
_TRIES = 3
_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


class Segment:
    """Lines of plain JSON in a file that is locked while it is written.

    Args:
        path: The path relative to the root.

    Attributes:
        size: Bytes written.
        opened_at: When it was opened, in seconds of the owner's clock.
    """

    def __init__(
        self, root: Root, path: Path, day: str, opened_at: float, opener: Opener = FileIO
    ) -> None:
        self._root = root
        self._path = path
        self.day = day
        self.size = 0
        self.opened_at = opened_at
        self._opener = opener
        self._file = _create(root, path, opener)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines: all of them or none.

        Raises:
            OSError: They can't be written.
        """
        data = b"".join(lines)
        try:
            write_all(self._file, data)
        except OSError:
            # A partial line would run into the next one.
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(data)

    def is_invalidated_by(self, error: OSError) -> bool:
        """Return whether the next lines must go to another segment after this error."""
        return error.errno not in _IS_FULL or not self.size

    def close(self) -> None:
        """Compress it and remove the plain file.

        Raises:
            OSError: It can't be compressed. The plain file stays, and another worker recovers it.
        """
        try:
            if self.size:
                # Use the open file, because a cleanup of old files may have removed its name.
                with self._root.opened(*self._path.parent.parts, make=True) as folder:
                    pack(self._file, folder, closed_name(self._path.name), self._opener)
            with (
                contextlib.suppress(OSError),
                self._root.opened(*self._path.parent.parts) as folder,
            ):
                folder.remove(self._path.name)
        finally:
            locks.close(self._file)


def _create(root: Root, path: Path, opener: Opener) -> FileIO:
    """Return a new file, which no one can find before it is locked."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return _try_to_create(root, path, opener)
    return _try_to_create(root, path, opener)


def _try_to_create(root: Root, path: Path, opener: Opener) -> FileIO:
    with root.opened(*path.parent.parts, make=True) as folder:
        return _create_in(folder, path.name, opener)


def _create_in(folder: Folder, name: str, opener: Opener) -> FileIO:
    draft = hidden(name)
    descriptor = folder.create(draft)
    try:
        file = opener(descriptor, "rb+")
    except BaseException:
        os.close(descriptor)
        folder.remove(draft)
        raise
    try:
        # If this file system has no locks, no one treats it as a dead worker's file.
        with contextlib.suppress(OSError):
            locks.lock(file)
        folder.rename(draft, name)
    except BaseException:
        locks.close(file)
        with contextlib.suppress(OSError):
            folder.remove(draft)
        raise
    return file
