"""The folder of a journal, and its segments: their names, who made them, and their format.

FOLDER/dt=YYYY-MM-DD/worker=<wid>/seg-N.jsonl.zst

A worker writes to one segment until a size, an age or the end of the day, and then closes it. The
segments of workers that died are closed by others.

Another user of the machine may write to the folder, too. So before each use a worker checks the
owner and the mode of every folder on the way, follows no link, and uses only files of its own user.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
import os
import stat
from collections.abc import Callable, Generator, Iterable
from dataclasses import InitVar, dataclass, field
from io import FileIO
from pathlib import Path

from celery_sqs_heartbeat.journal.fields import is_whole

#: Suffix of a segment that is being written.
OPEN_SUFFIX = ".jsonl.open"
#: Suffix of a segment that is finished and compressed.
CLOSED_SUFFIX = ".jsonl.zst"

#: The way out for a folder that could be a trap.
_FOLDER = (
    "chown it to the worker's user, do not let everyone write to it (chmod o-w), remove it if it "
    "is a link, or use another folder (set sqs_heartbeat_journal; for a journal on S3, TMPDIR)"
)

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
    moment = datetime.datetime.fromtimestamp(ts // 1_000_000, datetime.timezone.utc)
    return moment.date().isoformat()


def segment_path(day: str, wid: str, number: int) -> Path:
    """Return the path of an open segment, relative to the journal's folder."""
    return Path(f"dt={day}", f"worker={wid}", f"seg-{number}{OPEN_SUFFIX}")


def closed_path(path: Path) -> Path:
    """Return the path of an open segment after it is closed."""
    return path.with_name(path.name.removesuffix(OPEN_SUFFIX) + CLOSED_SUFFIX)


def segments(folder: Path, suffix: str, newest: int = 0) -> list[Path]:
    """Return the segments with this suffix, in order: by day, worker and number.

    Args:
        newest: Search only so many days, the newest; 0 for all.
    """
    days = sorted(folder.glob("dt=*"))[-newest:]
    return sorted(
        (path for day in days for path in day.glob(f"worker=*/seg-*{suffix}")), key=order_of
    )


def order_of(segment: Path) -> tuple[object, ...]:
    """Return the place of a segment among others: the shorter of two numbers is the smaller one."""
    name = segment.name.split(".")[0]
    return (segment.parts[-3:-1], len(name), name)


class RefusedError(PermissionError):
    """A file or folder could be another user's trap. The message has the way out."""


class Root:
    """A journal's folder, as a worker uses it. Threads may share it.

    Args:
        top: The first folder that is checked. It may be a link.
        below: The folders in it that lead to those of the days.

    Attributes:
        folder: The folder of the days.
    """

    def __init__(self, top: Path, below: tuple[str, ...] = ()) -> None:
        self.top = top
        self.folder = top.joinpath(*below)

    def check(self, folder: Path, *, make: bool = False) -> None:
        """Check each folder from the top to this one.

        It may be shared, as root's volume with a group for the workers, or one that everyone may
        write to, as Kubernetes makes them. In such a one, anyone could have made the next one.

        Args:
            make: Whether folders that are missing are made.

        Raises:
            RefusedError: Another user could have set a trap.
            OSError: A folder is missing, or can't be made.
        """
        path, parent_mode = self.top, 0
        for part in ("", *folder.relative_to(self.top).parts):
            path /= part
            if make:
                with contextlib.suppress(FileExistsError):
                    path.mkdir(0o770, parents=True)
            # Both a link and its target must be safe.
            for status in (path.lstat(), path.stat()):
                is_own = status.st_uid in (0, os.geteuid())
                is_closed = not (status.st_mode | parent_mode) & stat.S_IWOTH
                is_link = part and stat.S_ISLNK(status.st_mode)
                if is_link or not (is_own or is_closed):
                    raise RefusedError(
                        f"{path} belongs to user {status.st_uid} and has mode "
                        f"{stat.filemode(status.st_mode)}: {_FOLDER}; the worker's user is "
                        f"{os.geteuid()}"
                    )
            parent_mode = status.st_mode

    def segments(self, suffix: str, newest: int = 0) -> list[Path]:
        """Return the same as the function `segments`. Open them with `open_own`.

        Raises:
            RefusedError: Another user could have set a trap.
            OSError: The folder can't be entered.
        """
        with contextlib.suppress(FileNotFoundError):
            self.check(self.folder)
            return segments(self.folder, suffix, newest)
        return []

    def open_own(self, path: Path) -> FileIO:
        """Open a segment for reading and writing.

        Raises:
            RefusedError: It is not a file of this user, or could be another user's trap.
            OSError: It can't be opened. Another process may have closed or uploaded it just now.
        """
        self.check(path.parent)
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not is_file or status.st_uid != os.geteuid():
            raise RefusedError(f"{path} is not a regular file of this user without hard links")
        return FileIO(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), "rb+")


def opened(path: Path) -> FileIO:
    """Open a file of anyone, for reading.

    Raises:
        OSError: It can't be opened.
    """
    # Without O_NONBLOCK, opening a pipe would block.
    return FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def create(path: Path) -> FileIO:
    """Create a file, for reading and writing.

    Raises:
        OSError: The name is taken, also by a link, or no file can be made.
    """
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE), "rb+")


def lock(file: FileIO) -> None:
    """Lock a file until it is closed.

    Raises:
        OSError: It is locked already, or its file system has no locks.
    """
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(eq=False, repr=False)
class SegmentWriter:
    """The segments of one worker, one of which is open. For one thread.

    Attributes:
        on_fault: Called with each error of a write, or of closing a segment.
        first: The number of the first segment.
        written: The number of lines written.
    """

    root: Root
    wid: str
    clock: Callable[[], float]
    on_fault: Callable[[OSError], None]
    first: InitVar[int] = 1
    written: int = field(default=0, init=False)

    def __post_init__(self, first: int) -> None:
        self._numbers = itertools.count(first)
        #: The open segment, which is locked until it is closed.
        self._file: FileIO | None = None
        self._path, self._day, self._opened_at = Path(), "", 0.0

    def write(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Write lines, each with its time in microseconds."""
        for day, group in itertools.groupby(lines, key=lambda line: day_of(line[0])):
            batch = [line for _, line in group]
            try:
                self._append(day, b"".join(batch))
                self.written += len(batch)
            except OSError as error:
                self.on_fault(error)

    def close_if_old(self) -> None:
        """Close the segment if it is old enough."""
        if self.clock() >= self._opened_at + SEGMENT_SECONDS:
            self.close()

    def close(self) -> None:
        """Close the segment. The next line starts another."""
        if self._file is None:
            return
        with self._file as file:
            self._file = None
            try:
                self.root.check(self._path.parent, make=True)
                # From the open file, because a cleanup of old files may have removed its name.
                pack(file, self._path)
            except OSError as error:
                # The plain file stays, and a worker recovers it.
                self.on_fault(error)

    def _append(self, day: str, data: bytes) -> None:
        if self._file is not None:
            # A late line stays with the lines that it came with.
            day = max(day, self._day)
            if day > self._day or self._file.tell() + len(data) > SEGMENT_BYTES:
                self.close()
        file = self._file or self._begin(day)
        size = file.tell()
        try:
            write_all(file, data)
        except OSError:
            # A partial line would run into the next one, and the file may take no more.
            with contextlib.suppress(OSError):
                file.truncate(size)
            self.close()
            raise

    def _begin(self, day: str) -> FileIO:
        path = self.root.folder / segment_path(day, self.wid, next(self._numbers))
        self.root.check(path.parent, make=True)
        file = create(path)
        # A worker that takes it for a leftover may lock it just before. That one closes it without
        # a line, and all of its lines are in the file that replaces it when it is closed here.
        with contextlib.suppress(OSError):
            lock(file)
        self._file, self._path, self._day, self._opened_at = file, path, day, self.clock()
        return file


def pack(source: FileIO, path: Path) -> None:
    """Replace an open segment by a compressed file, which exists completely or not at all.

    Torn lines are left out. If no line is left, there is no file.

    Args:
        source: The segment's open file.
        path: Its path.

    Raises:
        OSError: The file can't be written. The open segment stays.
    """
    import zstandard

    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    closed = closed_path(path)
    draft = closed.with_name(f".{closed.name}")
    # A killed process may have left it. Existing files are never written to.
    draft.unlink(missing_ok=True)
    try:
        with open(source.fileno(), "rb", closefd=False) as reader, create(draft) as file:
            reader.seek(0)
            while lines := reader.readlines(FRAME_BYTES):
                if whole := b"".join(line for line in lines if is_whole(line)):
                    write_all(file, compress(whole))
            os.fsync(file.fileno())
            has_lines = file.tell() > 0
        if has_lines:
            draft.replace(closed)
        path.unlink(missing_ok=True)
    finally:
        # After success it does not exist any more.
        draft.unlink(missing_ok=True)


def unpack(data: bytes) -> Generator[bytes, None, bool]:
    """Yield the complete lines of a closed segment's bytes.

    Returns:
        Whether the segment is complete. Everything after damage is left out, and so is a line
        without an end.
    """
    import zstandard

    rest, has_end = b"", False
    try:
        # A frame of a worker has at most a megabyte.
        while data:
            frame = zstandard.ZstdDecompressor().decompressobj()
            *lines, rest = (rest + frame.decompress(data)).split(b"\n")
            yield from (line + b"\n" for line in lines)
            data, has_end = frame.unused_data, frame.eof
    except zstandard.ZstdError:
        return False
    return has_end and not rest


def write_all(file: FileIO, data: bytes) -> None:
    """Write all of the data.

    Raises:
        OSError: It can't be written. A part of it may have been.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def recover(root: Root, newest: int = 0) -> None:
    """Close the open segments of this user whose writers are dead.

    A segment that can't be closed stays open. On a file system without locks all stay open,
    because nothing shows which writers are alive.

    Args:
        newest: Search only so many days, the newest; 0 for all.

    Raises:
        OSError: The root can't be trusted or entered.
    """
    for path in root.segments(OPEN_SUFFIX, newest):
        with contextlib.suppress(OSError), root.open_own(path) as file:
            lock(file)
            # Another process may have closed and removed it just now.
            if os.fstat(file.fileno()).st_nlink:
                pack(file, path)
