"""Decides what a journal may touch, because another user could have put it there.

A spool in the folder for temporary files must belong to this user only, because its content is
read and uploaded. A folder that a setting names may be shared: root's volume with a group for the
workers, or a volume that everyone may write to, as Kubernetes makes them. Each file in either must
belong to this user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Permissions that others must not have in a private folder: all.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PRIVATE_WAY_OUT = (
    "remove it, or set TMPDIR to a folder that no other user may write to (the spool of a "
    "journal must be a folder of the worker's user, with mode 0700)"
)


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
