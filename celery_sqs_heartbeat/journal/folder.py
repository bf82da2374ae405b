"""The folder of a journal: the paths of its segments, and the check before a worker uses one.

FOLDER/dt=YYYY-MM-DD/worker=<wid>/seg-N.jsonl.zst

Another user of the machine may write to the folder, too. So a worker opens every file from the
descriptor of the folder above, follows no link, and uses only files of its own user. Readers use
the paths.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

logger = logging.getLogger(__name__)

#: Suffix of a segment that is being written.
OPEN_SUFFIX = ".jsonl.open"
#: Suffix of a segment that is finished and compressed.
CLOSED_SUFFIX = ".jsonl.zst"

DAY_MICROSECONDS = 86_400_000_000
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()

#: Mode of new files. A umask can only make it stricter.
_FILE_MODE = 0o640
#: The open folder is only a starting point, so it does not have to be readable.
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY


def day_of(ts: int) -> str:
    """Return the UTC day of a time in microseconds, as YYYY-MM-DD."""
    return datetime.date.fromordinal(_EPOCH_DAY + ts // DAY_MICROSECONDS).isoformat()


def segment_path(day: str, wid: str, number: int) -> Path:
    """Return the path of an open segment, relative to the journal's folder."""
    return Path(f"dt={day}", f"worker={wid}", f"seg-{number}{OPEN_SUFFIX}")


def hidden(name: str) -> str:
    """Return the name of a file until it is complete. Readers skip it."""
    return f".{name}"


def closed_name(name: str) -> str:
    """Return the name of an open segment after it is closed."""
    return name.removesuffix(OPEN_SUFFIX) + CLOSED_SUFFIX


class RefusedError(PermissionError):
    """A file or folder could be another user's trap. The message has the way out."""


class Folder:
    """An open folder of segments. All names are names of its own entries.

    Attributes:
        path: For messages only. Nothing is opened by it.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self.path = path

    def create(self, name: str) -> FileIO:
        """Create a file, for reading and writing.

        Raises:
            OSError: The name is taken, or no file can be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        return FileIO(_open(self.path, name, flags, self._descriptor), "rb+")

    def open(self, name: str) -> FileIO:
        """Open a file of this user, for reading and writing.

        Raises:
            RefusedError: It is anything else.
            OSError: It can't be opened.
        """
        # Without `O_NONBLOCK`, opening a FIFO would block.
        descriptor = _open(self.path, name, os.O_RDWR | os.O_NONBLOCK, self._descriptor)
        status = os.fstat(descriptor)
        is_file = stat.S_ISREG(status.st_mode)
        if not is_file or status.st_uid != os.geteuid() or status.st_nlink > 1:
            os.close(descriptor)
            raise RefusedError(
                f"{str(self.path / name)!r} is not a regular file of user {os.geteuid()} without "
                "other hard links: chown it, remove it, or leave it to a worker of its owner"
            )
        return FileIO(descriptor, "rb+")

    def rename(self, old: str, new: str) -> None:
        """Rename an entry, and replace an entry that has the new name. No link is followed."""
        os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, or a link to one, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)


class Root:
    """A journal's folder, as a worker uses it: checked each time. Threads may share it.

    Args:
        top: The folder that is checked.
        below: The folders in it that lead to those of the days.
        is_private: Whether it must belong to this user alone: mode 0700, and no link. Otherwise
            it may be shared, as root's volume with a group for the workers, or one that everyone
            may write to, as Kubernetes makes them.

    Attributes:
        folder: The folder of the days, for messages.
    """

    def __init__(self, top: Path, below: tuple[str, ...] = (), *, is_private: bool) -> None:
        self.top = top
        self.folder = top.joinpath(*below)
        self._below = below
        self._is_private = is_private
        self._has_refused = False

    @contextlib.contextmanager
    def opened(self, *parts: str, make: bool = False) -> Iterator[Folder]:
        """Provide the folder that these parts lead to, below `folder`, open and checked.

        Args:
            make: Whether folders that are missing are made.

        Raises:
            RefusedError: Another user could have set a trap.
            OSError: It is missing, or can't be made or entered.
        """
        path, mode = self.top, 0o700 if self._is_private else 0o770
        if make:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode, parents=True, exist_ok=True)
        place = self._enter()
        try:
            for part in (*self._below, *parts):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, mode, dir_fd=place)
                outer, place = place, _open(path, part, _PLACE, place)
                os.close(outer)
                path /= part
            yield Folder(place, path)
        finally:
            os.close(place)

    def segments(self, suffix: str, day: str = "*") -> list[Path]:
        """Return the segments with this suffix, relative to `folder`.

        Only their names are known. Each must be opened by `opened`.

        Raises:
            RefusedError: Another user could have set a trap.
            OSError: The folder can't be entered.
        """
        with contextlib.suppress(FileNotFoundError), self.opened():
            found = self.folder.glob(f"dt={day}/worker=*/seg-*{suffix}")
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

    def _enter(self) -> int:
        """Return the descriptor of the top folder, if it is safe to use."""
        status = self.top.lstat()
        if self._is_safe(status):
            place = os.open(self.top, _PLACE | (os.O_NOFOLLOW if self._is_private else 0))
            # It may be another folder now, or one that a link leads to.
            status = os.fstat(place)
            if self._is_safe(status):
                return place
            os.close(place)
        raise RefusedError(
            f"{self.top} belongs to user {status.st_uid} and has mode "
            f"{stat.filemode(status.st_mode)}: {self._way_out()}"
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


def _open(folder: Path, name: str, flags: int, place: int) -> int:
    """Open an entry of a folder by its name, unless it is a link."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW, _FILE_MODE, dir_fd=place)
    except OSError as error:
        # Linux returns ENOTDIR for a link to a folder.
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RefusedError(
                f"{str(folder / name)!r} is a symbolic link or not a folder: remove it if it is "
                "not yours"
            ) from None
        raise
