"""A journal's segments: written until a size, an age or the end of the day, and then closed.

Those of workers that died are closed by others.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from celery_sqs_heartbeat.journal.folders import Folder, close_file, lock_file
from celery_sqs_heartbeat.journal.layout import (
    OPEN_SUFFIX,
    closed_name,
    day_of,
    hidden,
    segment_path,
)
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
            close_file(self._file)


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
            lock_file(file)
        folder.rename(draft, name)
    except BaseException:
        close_file(file)
        with contextlib.suppress(OSError):
            folder.remove(draft)
        raise
    return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a segment is closed.

    Attributes:
        max_bytes: Largest size of its plain lines.
        max_age: Longest age, in seconds.
    """

    max_bytes: int = 8 << 20
    max_age: float = 300.0


class SegmentWriter:
    """The segments of one worker, one of which is open. For one thread.

    Args:
        clock: Monotonic seconds.
        first: The number of the first segment.

    Attributes:
        fault: The error of the last `write` or `rotate`, or None.
    """

    def __init__(
        self,
        root: Root,
        wid: str,
        rotation: Rotation,
        clock: Callable[[], float],
        *,
        opener: Opener = FileIO,
        first: int = 1,
    ) -> None:
        self._root = root
        self._wid = wid
        self._rotation = rotation
        self._clock = clock
        self._opener = opener
        self._numbers = itertools.count(first)
        self._segment: Segment | None = None
        self.fault: OSError | None = None

    def write(self, lines: Iterable[tuple[int, bytes]]) -> int:
        """Write lines, each with its time in microseconds. Return how many were written."""
        self.fault = None
        written = 0
        for day, batch in self._batches(lines):
            try:
                self._append(day, batch)
                written += len(batch)
            except OSError as error:
                self.fault = error
        return written

    def rotate_if_old(self) -> None:
        """Close the segment if it is old enough."""
        segment = self._segment
        if segment is not None and self._clock() >= segment.opened_at + self._rotation.max_age:
            self.rotate()

    def rotate(self) -> None:
        """Close the segment. The next line starts another."""
        self.fault = None
        self._close()

    def _batches(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, list[bytes]]]:
        """Yield batches of lines that each go into one segment, with its day."""
        day = self._segment.day if self._segment else ""
        size, batch = 0, list[bytes]()
        for ts, line in lines:
            # A late line stays with the lines that it came with.
            line_day = max(day, day_of(ts))
            if batch and (line_day != day or size + len(line) > self._rotation.max_bytes):
                yield day, batch
                size, batch = 0, []
            day = line_day
            batch.append(line)
            size += len(line)
        if batch:
            yield day, batch

    def _append(self, day: str, batch: Sequence[bytes]) -> None:
        size = sum(map(len, batch))
        segment = self._segment
        if segment and (segment.day != day or segment.size + size > self._rotation.max_bytes):
            self._close()
        if self._segment is None:
            path = segment_path(day, self._wid, next(self._numbers))
            self._segment = Segment(self._root, path, day, self._clock(), self._opener)
        try:
            self._segment.append(batch)
        except OSError as error:
            if self._segment.is_invalidated_by(error):
                self._close()
            raise

    def _close(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                segment.close()
            except OSError as error:
                self.fault = error


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery.

    Attributes:
        segments: Segments that were closed.
        torn: Unfinished lines that were left out.
    """

    segments: int = 0
    torn: int = 0


def recover(root: Root, days: Iterable[str] = ("*",)) -> Recovered:
    """Close every open segment of this user that is not locked, because its writer is dead.

    A segment that can't be closed stays open. On a file system without locks all stay open,
    because nothing shows which writers are alive.

    Args:
        days: Search only these, because it takes long to list many days.

    Raises:
        OSError: The root can't be trusted or entered.
    """
    segments = torn = 0
    for path in [path for day in days for path in root.paths(OPEN_SUFFIX, day)]:
        try:
            with root.opened(*path.parent.parts) as folder:
                count = _close(folder, path.name)
        except OSError as error:
            root.note(error)
            continue
        segments += 1
        torn += count
    return Recovered(segments, torn)


def _close(folder: Folder, name: str) -> int:
    file = folder.open(name, writable=True)
    try:
        lock_file(file)
        # Another process may have closed it between opening and locking.
        if not os.path.samestat(os.fstat(file.fileno()), folder.look(name)):
            raise FileNotFoundError(name)
        torn = pack(file, folder, closed_name(name))
        folder.remove(name)
        return torn
    finally:
        close_file(file)
