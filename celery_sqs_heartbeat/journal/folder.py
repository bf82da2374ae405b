"""The folder of a journal, and its segments, as workers write them.

FOLDER/dt=YYYY-MM-DD/worker=<wid>/seg-N.jsonl.zst

A worker writes to one segment until a size, an age or the end of the day, and then closes it. The
segments of workers that died are closed by others.

Another user of the machine may write to the folder, too. So before each use a worker checks every
folder on the way, opens no link, and uses only files of its own user.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
import logging
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from celery_sqs_heartbeat.journal.fields import is_whole

logger = logging.getLogger(__name__)

#: Suffix of a segment that is being written.
OPEN_SUFFIX = ".jsonl.open"
#: Suffix of a segment that is finished and compressed.
CLOSED_SUFFIX = ".jsonl.zst"

DAY_MICROSECONDS = 86_400_000_000
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()

#: Mode of new files. A umask can only make it stricter.
_FILE_MODE = 0o640

#: Largest size of a segment's plain lines, in bytes, unless one write brings more.
SEGMENT_BYTES = 8 << 20
#: Longest age of an open segment, in seconds.
SEGMENT_SECONDS = 300.0
#: Bytes of lines in a frame, before compression. Larger frames hardly compress better.
FRAME_BYTES = 1 << 20


def day_of(ts: int) -> str:
    """Return the UTC day of a time in microseconds, as YYYY-MM-DD."""
    return datetime.date.fromordinal(_EPOCH_DAY + ts // DAY_MICROSECONDS).isoformat()


def segment_path(day: str, wid: str, number: int) -> Path:
    """Return the path of an open segment, relative to the journal's folder."""
    return Path(f"dt={day}", f"worker={wid}", f"seg-{number}{OPEN_SUFFIX}")


def closed_path(path: Path) -> Path:
    """Return the path of an open segment after it is closed."""
    return path.with_name(path.name.removesuffix(OPEN_SUFFIX) + CLOSED_SUFFIX)


class RefusedError(PermissionError):
    """A file or folder could be another user's trap. The message has the way out."""


class Root:
    """A journal's folder, as a worker uses it. Threads may share it.

    Args:
        top: The first folder that is checked.
        below: The folders in it that lead to those of the days.
        is_private: Whether all must belong to this user alone: mode 0700, and no link. Otherwise
            they may be shared, as root's volume with a group for the workers, or one that everyone
            may write to, as Kubernetes makes them.

    Attributes:
        folder: The folder of the days.
    """

    def __init__(self, top: Path, below: tuple[str, ...] = (), *, is_private: bool) -> None:
        self.top = top
        self.folder = top.joinpath(*below)
        self._below = below
        self._is_private = is_private
        self._has_refused = False

    def located(self, file: Path, *, make: bool = False) -> Path:
        """Return the path of a file below `folder`, after a check of every folder on the way.

        Args:
            file: Its path relative to `folder`.
            make: Whether folders that are missing are made.

        Raises:
            RefusedError: Another user could have set a trap.
            OSError: A folder is missing, or can't be made.
        """
        path, mode = self.top, 0o700 if self._is_private else 0o770
        for part in ("", *self._below, *file.parts[:-1]):
            path /= part
            if make:
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode, parents=True)
            status = path.lstat()
            if part and stat.S_ISLNK(status.st_mode):
                raise RefusedError(
                    f"{str(path)!r} is a symbolic link: remove it if it is not yours"
                )
            # A setting may name a link. It and its target must both be safe.
            if not (self._is_safe(status) and self._is_safe(status := path.stat())):
                raise RefusedError(
                    f"{path} belongs to user {status.st_uid} and has mode "
                    f"{stat.filemode(status.st_mode)}: {self._way_out()}"
                )
        return self.folder / file

    def segments(self, suffix: str, day: str = "*") -> list[Path]:
        """Return the segments with this suffix, relative to `folder`.

        Only their names are known. Find each by `located`, and open it by `open_own`.

        Raises:
            RefusedError: Another user could have set a trap.
            OSError: The folder can't be entered.
        """
        with contextlib.suppress(FileNotFoundError):
            found = self.located(Path()).glob(f"dt={day}/worker=*/seg-*{suffix}")
            return [path.relative_to(self.folder) for path in found]
        return []

    def note(self, error: OSError) -> None:
        """Log the first refusal only, because a trap may be set a million times."""
        if isinstance(error, RefusedError) and not self._has_refused:
            self._has_refused = True
            logger.warning(
                "sqs-heartbeat: the journal does not touch a file or folder: %s. Further ones "
                "below %s are not logged",
                error,
                self.folder,
            )

    def _is_safe(self, status: os.stat_result) -> bool:
        me, is_folder = os.geteuid(), stat.S_ISDIR(status.st_mode)
        if self._is_private:
            return is_folder and status.st_uid == me and not status.st_mode & 0o077
        return status.st_uid in (0, me) or (is_folder and not status.st_mode & stat.S_IWOTH)

    def _way_out(self) -> str:
        if self._is_private:
            return (
                "remove it, or set TMPDIR to a folder that no other user may write to (the spool "
                "of a journal must be a folder of the worker's user, with mode 0700)"
            )
        return (
            "set sqs_heartbeat_journal to the folder itself, not to another user's link, and chown "
            f"it to the worker's user, who is {os.geteuid()}, or do not let everyone write to it "
            "(chmod o-w)"
        )


def create(path: Path) -> FileIO:
    """Create a file, for reading and writing.

    Raises:
        OSError: The name is taken, also by a link, or no file can be made.
    """
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE), "rb+")


def open_own(path: Path) -> FileIO:
    """Open a file of this user, for reading and writing.

    Raises:
        RefusedError: It is anything else.
        OSError: It can't be opened.
    """
    status = path.lstat()
    is_file = stat.S_ISREG(status.st_mode)
    if not is_file or status.st_uid != os.geteuid() or status.st_nlink > 1:
        raise RefusedError(
            f"{str(path)!r} is not a regular file of user {os.geteuid()} without other hard links: "
            "chown it, remove it, or leave it to a worker of its owner"
        )
    return FileIO(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), "rb+")


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
        with segment.file:
            try:
                # From the open file, because a cleanup of old files may have removed its name.
                pack(segment.file, self._root.located(segment.path, make=True))
            except OSError as error:
                # The plain file stays, and a worker recovers it.
                self._on_fault(error)

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
        file = create(self._root.located(path, make=True))
        # A worker that takes it for a leftover may lock it just before. That one closes it without
        # a line, and all of its lines are in the file that replaces it when it is closed here.
        with contextlib.suppress(BlockingIOError):
            lock(file)
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


def pack(source: FileIO, path: Path) -> int:
    """Replace an open segment by a compressed file, which exists completely or not at all.

    Args:
        source: The segment's open file.
        path: Its path.

    Returns:
        How many torn lines were left out. If no line is left, there is no file.

    Raises:
        OSError: The file can't be written. The open segment stays.
    """
    import zstandard

    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    closed, torn = closed_path(path), 0
    draft = closed.with_name(f".{closed.name}")
    # A killed process may have left it. Existing files are never written to.
    draft.unlink(missing_ok=True)
    try:
        with open(source.fileno(), "rb", closefd=False) as reader, create(draft) as file:
            reader.seek(0)
            while lines := reader.readlines(FRAME_BYTES):
                whole = [line for line in lines if is_whole(line)]
                torn += len(lines) - len(whole)
                if whole:
                    write_all(file, compress(b"".join(whole)))
            os.fsync(file.fileno())
            has_lines = file.tell() > 0
        if has_lines:
            draft.replace(closed)
        path.unlink(missing_ok=True)
    finally:
        # After success it does not exist any more.
        draft.unlink(missing_ok=True)
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
            place = root.located(path)
            with open_own(place) as file:
                # Another process may have closed and removed it just now.
                if lock(file) and os.fstat(file.fileno()).st_nlink:
                    torn += pack(file, place)
                    segments += 1
        except OSError as error:
            root.note(error)
    return segments, torn
