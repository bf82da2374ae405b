"""A worker's segments: written until a size, an age or the end of the day, and then closed.

Those of workers that died are closed by others.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from celery_sqs_heartbeat.journal.fields import is_whole
from celery_sqs_heartbeat.journal.folder import (
    OPEN_SUFFIX,
    Folder,
    Root,
    closed_name,
    day_of,
    hidden,
    segment_path,
)

#: Largest size of a segment's plain lines, in bytes, unless one write brings more.
SEGMENT_BYTES = 8 << 20
#: Longest age of an open segment, in seconds.
SEGMENT_SECONDS = 300.0
#: Bytes of lines in a frame, before compression. Larger frames hardly compress better.
FRAME_BYTES = 1 << 20


@dataclass(slots=True, repr=False)
class _Segment:
    """The open segment. Its file is locked until it is closed."""

    path: Path
    day: str
    file: FileIO
    opened_at: float
    size: int = 0


class SegmentWriter:
    """The segments of one worker, one of which is open. For one thread.

    Args:
        clock: Monotonic seconds.
        on_fault: Called with each error of a write, or of closing a segment.
        first: The number of the first segment.
    """

    def __init__(
        self,
        root: Root,
        wid: str,
        clock: Callable[[], float],
        on_fault: Callable[[OSError], None],
        first: int = 1,
    ) -> None:
        self._root = root
        self._wid = wid
        self._clock = clock
        self._on_fault = on_fault
        self._numbers = itertools.count(first)
        self._segment: _Segment | None = None

    def write(self, lines: Iterable[tuple[int, bytes]]) -> int:
        """Write lines, each with its time in microseconds. Return how many were written."""
        written = 0
        for day, group in itertools.groupby(lines, key=lambda line: day_of(line[0])):
            batch = [line for _, line in group]
            try:
                self._append(day, b"".join(batch))
                written += len(batch)
            except OSError as error:
                self._on_fault(error)
        return written

    def close_if_old(self) -> None:
        """Close the segment if it is old enough."""
        if self._segment and self._clock() >= self._segment.opened_at + SEGMENT_SECONDS:
            self.close()

    def close(self) -> None:
        """Close the segment. The next line starts another."""
        segment, self._segment = self._segment, None
        if segment is None:
            return
        try:
            with self._root.opened(*segment.path.parent.parts, make=True) as folder:
                # From the open file, because a cleanup of old files may have removed its name.
                pack(segment.file, folder, segment.path.name)
        except OSError as error:
            # The plain file stays, and a worker recovers it.
            self._on_fault(error)
        finally:
            segment.file.close()

    def _append(self, day: str, data: bytes) -> None:
        if segment := self._segment:
            # A late line stays with the lines that it came with.
            day = max(day, segment.day)
            if day > segment.day or segment.size + len(data) > SEGMENT_BYTES:
                self.close()
        segment = self._segment = self._segment or self._begin(day)
        try:
            write_all(segment.file, data)
        except OSError:
            # A partial line would run into the next one, and the file may take no more.
            with contextlib.suppress(OSError):
                segment.file.truncate(segment.size)
            self.close()
            raise
        segment.size += len(data)

    def _begin(self, day: str) -> _Segment:
        path = segment_path(day, self._wid, next(self._numbers))
        draft = hidden(path.name)
        with self._root.opened(*path.parent.parts, make=True) as folder:
            file = folder.create(draft)
            try:
                # No one finds it before it is locked.
                lock(file)
                folder.rename(draft, path.name)
            except OSError:
                file.close()
                folder.remove(draft)
                raise
        return _Segment(path, day, file, self._clock())


def lock(file: FileIO) -> bool:
    """Lock a file until it is closed. Return False if its file system has no locks.

    Raises:
        BlockingIOError: Another process has locked it, or this process has, by another open file.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def pack(source: FileIO, folder: Folder, name: str) -> int:
    """Replace an open segment by a compressed file, which exists completely or not at all.

    Args:
        source: The segment's open file.
        name: Its name in the folder.

    Returns:
        How many torn lines were left out. If no line is left, there is no file.

    Raises:
        OSError: The file can't be written. The open segment stays.
    """
    import zstandard

    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    draft = hidden(closed_name(name))
    torn = 0
    # A killed process may have left it. Existing files are never written to.
    folder.remove(draft)
    try:
        with (
            open(source.fileno(), "rb", closefd=False) as reader,
            folder.create(draft) as file,
        ):
            reader.seek(0)
            while lines := reader.readlines(FRAME_BYTES):
                whole = [line for line in lines if is_whole(line)]
                torn += len(lines) - len(whole)
                if whole:
                    write_all(file, compress(b"".join(whole)))
            os.fsync(file.fileno())
            has_lines = file.tell() > 0
        if has_lines:
            folder.rename(draft, closed_name(name))
        folder.remove(name)
    finally:
        # After success it does not exist any more.
        folder.remove(draft)
    return torn


def write_all(file: FileIO, data: bytes) -> None:
    """Write all of the data.

    Raises:
        OSError: It can't be written. A part of it may have been.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def recover(root: Root, days: Iterable[str] = ("*",)) -> tuple[int, int]:
    """Close every open segment of this user that is not locked, because its writer is dead.

    A segment that can't be closed stays open. On a file system without locks all stay open,
    because nothing shows which writers are alive.

    Args:
        days: Search only these, because it takes long to list many days.

    Returns:
        How many were closed, and how many unfinished lines were left out.

    Raises:
        OSError: The root can't be trusted or entered.
    """
    segments = torn = 0
    for path in [path for day in days for path in root.segments(OPEN_SUFFIX, day)]:
        try:
            with root.opened(*path.parent.parts) as folder, folder.open(path.name) as file:
                # Another process may have closed and removed it just now.
                if lock(file) and os.fstat(file.fileno()).st_nlink:
                    torn += pack(file, folder, path.name)
                    segments += 1
        except OSError as error:
            root.note(error)
    return segments, torn
