"""Folders that are reached by descriptor, so that no link or other folder takes their place."""

from __future__ import annotations

import contextlib
import errno
import os
from io import FileIO
from pathlib import Path
from types import TracebackType

from celery_sqs_heartbeat.journal.trust import refuse_link, refuse_others

#: Of new files. A umask can only make it stricter.
FILE_MODE = 0o640
#: An open folder is only a place to start from, and need not be readable for that.
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
#: Without `O_NONBLOCK` a FIFO would keep the one that opens it waiting.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Folder:
    """An open folder; all names are those of its own entries. A context that closes it.

    Args:
        folder_mode: Of folders that are made in it.

    Attributes:
        path: For messages. Nothing is opened by it.
    """

    def __init__(self, descriptor: int, path: Path, folder_mode: int) -> None:
        self._descriptor = descriptor
        self._folder_mode = folder_mode
        self.path = path

    @classmethod
    def at(cls, path: Path, folder_mode: int, *, follow: bool) -> Folder:
        """Open a folder by its path.

        Args:
            follow: Whether it may be reached through a symbolic link.

        Raises:
            OSError: It is not there, is no folder, or may not be entered.
        """
        return cls(os.open(path, _PLACE | (0 if follow else os.O_NOFOLLOW)), path, folder_mode)

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def status(self) -> os.stat_result:
        """Return what the system knows of the folder itself."""
        return os.fstat(self._descriptor)

    def names(self) -> list[str]:
        """Return the names of all entries."""
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            return os.listdir(listed)
        finally:
            os.close(listed)

    def enter(self, name: str, *, make: bool = False) -> Folder:
        """Open a folder in it, which is made if that is wanted and it is missing.

        Raises:
            RefusedError: It is a symbolic link.
            OSError: It can't be made or entered.
        """
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, self._folder_mode, dir_fd=self._descriptor)
        try:
            inner = os.open(name, _PLACE | os.O_NOFOLLOW, dir_fd=self._descriptor)
        except OSError as error:
            # Linux has ENOTDIR for a link, too.
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                refuse_link(self.look(name), self.path / name)
            raise
        return Folder(inner, self.path / name, self._folder_mode)

    def look(self, name: str) -> os.stat_result:
        """Return what the system knows of an entry; of a link itself, not of its target."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def create(self, name: str) -> int:
        """Return the descriptor of a new file, for reading and writing.

        Raises:
            OSError: The name is taken, or no file can be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE
        return os.open(name, flags, FILE_MODE, dir_fd=self._descriptor)

    def open(self, name: str, *, writable: bool = False) -> FileIO:
        """Open a file of this user's.

        Raises:
            RefusedError: It is anything else.
            OSError: It can't be opened.
        """
        flags = (os.O_RDWR if writable else os.O_RDONLY) | _FILE
        try:
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                refuse_link(self.look(name), self.path / name)
            raise
        file = FileIO(descriptor, "rb+" if writable else "rb")
        try:
            refuse_others(os.fstat(descriptor), self.path / name)
        except BaseException:
            file.close()
            raise
        return file

    def rename(self, old: str, new: str) -> None:
        """Rename an entry. One that has the new name is replaced, and no link is followed."""
        os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, or a link to one."""
        os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=self._descriptor)
