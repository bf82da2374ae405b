"""Folders and files that a journal may touch, because no other user can have put them there.

A folder is opened by descriptor, so that no link or other folder can replace it.

A spool in the folder for temporary files must belong to this user only, because its content is
read and uploaded. A folder that a setting names may be shared: root's volume with a group for the
workers, or a volume that everyone may write to, as Kubernetes makes them. Each file in either must
belong to this user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from io import FileIO
from pathlib import Path
from types import TracebackType

#: Permissions that others must not have in a private folder: all.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PRIVATE_WAY_OUT = (
    "remove it, or set TMPDIR to a folder that no other user may write to (the spool of a "
    "journal must be a folder of the worker's user, with mode 0700)"
)
#: Mode of new files. A umask can only make it stricter.
FILE_MODE = 0o640
#: The open folder is only a starting point, so it does not have to be readable.
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
#: Without `O_NONBLOCK`, opening a FIFO would block.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def lock_file(file: FileIO) -> None:
    """Lock a file until `close_file`.

    Raises:
        BlockingIOError: Another process has locked it, or this process has, by another open file.
        OSError: The file system has no locks.
    """
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def close_file(file: FileIO) -> None:
    """Close a file and release its lock."""
    with contextlib.suppress(OSError):
        file.close()


class RefusedError(PermissionError):
    """A file or folder must not be touched. The message has the way out."""


class UntrustedRootError(PermissionError):
    """A journal's folder could be another user's trap. The message has the way out."""


def not_a_folder(path: Path) -> UntrustedRootError:
    """Return the error if something else is in the place of a private folder."""
    return UntrustedRootError(f"{path} is not a folder: {_PRIVATE_WAY_OUT}")


def check_private(status: os.stat_result, path: Path) -> None:
    """Refuse a folder that does not belong to this user only.

    Raises:
        UntrustedRootError: It does not.
    """
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        raise UntrustedRootError(f"{path} {_owner(status)}: {_PRIVATE_WAY_OUT}")


def check_shared(status: os.stat_result, path: Path) -> None:
    """Refuse a folder that anyone could have made.

    Raises:
        UntrustedRootError: Anyone could have.
    """
    if not _is_trusted_owner(status) and status.st_mode & stat.S_IWOTH:
        raise UntrustedRootError(
            f"{path} {_owner(status)}, so everyone may write to it: chown it to the worker's user, "
            f"who is {os.geteuid()}, or remove that permission (chmod o-w)"
        )


def check_way(path: Path) -> None:
    """Refuse a shared folder that is reached through another user's link.

    Raises:
        UntrustedRootError: The path is such a link.
        OSError: The path does not exist.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) and not _is_trusted_owner(status):
        raise UntrustedRootError(
            f"{path} is a symbolic link of user {status.st_uid}: remove it, or set "
            "sqs_heartbeat_journal to the folder itself"
        )


def refuse_link(status: os.stat_result, path: Path) -> None:
    """Refuse a symbolic link below the root.

    Raises:
        RefusedError: It is one.
    """
    if stat.S_ISLNK(status.st_mode):
        raise RefusedError(f"{str(path)!r} is a symbolic link: remove it if it is not yours")


def refuse_others(status: os.stat_result, path: Path) -> None:
    """Refuse everything except regular files of this user without another hard link.

    Raises:
        RefusedError: It is something else.
    """
    refuse_link(status, path)
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{str(path)!r} is not a regular file: remove it")
    if status.st_uid != os.geteuid():
        raise RefusedError(
            f"{str(path)!r} belongs to user {status.st_uid}, and this worker runs as user "
            f"{os.geteuid()}: chown it, remove it, or leave it to a worker of its owner"
        )
    if status.st_nlink > 1:
        raise RefusedError(f"{str(path)!r} is a hard link to a file elsewhere: remove it")


def _is_trusted_owner(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _owner(status: os.stat_result) -> str:
    mode = stat.S_IMODE(status.st_mode)
    return f"belongs to user {status.st_uid} and has mode {mode:04o}"


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
