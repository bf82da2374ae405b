"""One segment of a journal, while it is written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from celery_sqs_heartbeat.journal import locks
from celery_sqs_heartbeat.journal.layout import closed_path, hidden
from celery_sqs_heartbeat.journal.packing import Opener, pack, write_all

#: How often the folders are made: whoever ships the last segment in them removes them.
_TRIES = 3
_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


class Segment:
    """Lines of plain JSON in a file that is locked for as long as it is written.

    Attributes:
        size: Bytes written.
        opened_at: Seconds of the owner's clock.
    """

    def __init__(self, path: Path, day: str, opened_at: float, opener: Opener = FileIO) -> None:
        self.path = path
        self.day = day
        self.size = 0
        self.opened_at = opened_at
        self._opener = opener
        self._file = _create(path, opener)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines: all of them or none.

        Raises:
            OSError: They can't be written.
        """
        data = b"".join(lines)
        try:
            write_all(self._file, data)
        except OSError:
            # A part of them would run into the next line.
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(data)

    def is_spoilt_by(self, error: OSError) -> bool:
        """Return whether lines had better go to another segment after this error."""
        return error.errno not in _IS_FULL or not self.size

    def close(self) -> None:
        """Compress it and remove the plain file.

        Raises:
            OSError: It can't be compressed. The plain file stays, for whoever recovers it.
        """
        try:
            if self.size:
                # By the open file: a cleaner of old files may have removed its name.
                self.path.parent.mkdir(parents=True, exist_ok=True)
                pack(self._file, closed_path(self.path), self._opener)
            with contextlib.suppress(OSError):
                self.path.unlink()
        finally:
            locks.close(self._file)


def _create(path: Path, opener: Opener) -> FileIO:
    """Return a new file, which nobody finds before it is locked."""
    draft = hidden(path)
    for left in reversed(range(_TRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = opener(draft, "xb+")
            break
        except FileNotFoundError:
            if not left:
                raise
    try:
        # Without locks on this file system nobody takes it for a dead worker's.
        with contextlib.suppress(OSError):
            locks.lock(file)
        draft.rename(path)
    except BaseException:
        locks.close(file)
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    return file
