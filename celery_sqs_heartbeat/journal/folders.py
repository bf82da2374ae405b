"""Folders that are opened by descriptor, so that no link or other folder can replace them."""

from __future__ import annotations

import contextlib
import errno
import os
from io import FileIO
from pathlib import Path
from types import TracebackType

from celery_sqs_heartbeat.journal.trust import refuse_link, refuse_others

#: Mode of new files. A umask can only make it stricter.
FILE_MODE = 0o640
#: The open folder is only a starting point, so it does not have to be readable.
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
#: Without `O_NONBLOCK`, opening a FIFO would block.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Folder:
    """An open folder. All names are names of its own entries. As a context, it closes itself.

    Args:
        folder_mode: The mode of folders that are made in it.

    Attributes:
        path: For messages only. Nothing is opened by it.
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
            OSError: It does not exist, is not a folder, or may not be entered.
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
        """Return the status of the folder itself."""
        return os.fstat(self._descriptor)

    def names(self) -> list[str]:
        """Return the names of all entries."""
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            return os.listdir(listed)
        finally:
            os.close(listed)

    def enter(self, name: str, *, make: bool = False) -> Folder:
        """Open a folder in it. If `make` is set and it is missing, make it.

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
            # Linux returns ENOTDIR for a link, too.
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                refuse_link(self.look(name), self.path / name)
            raise
        return Folder(inner, self.path / name, self._folder_mode)

    def look(self, name: str) -> os.stat_result:
        """Return the status of an entry; for a link, of the link itself."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def create(self, name: str) -> int:
        """Return the descriptor of a new file, for reading and writing.

        Raises:
            OSError: The name is taken, or no file can be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE
        return os.open(name, flags, FILE_MODE, dir_fd=self._descriptor)

    def open(self, name: str, *, writable: bool = False) -> FileIO:
        """Open a file that belongs to this user.

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
        """Rename an entry, and replace an entry that has the new name. No link is followed."""
        os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, or a link to one."""
        os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=self._descriptor)
