"""What a journal touches, and what it leaves alone as another user could have put it there.

A spool in the folder for temporary files must be this user's alone, as what is in it is read and
sent away. A folder that a setting names may be shared: a volume of root's with a group for the
workers, or one that everyone may write to, as Kubernetes makes them. Each file in either must be
this user's own.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: What others may not do in a private folder: anything.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PRIVATE_WAY_OUT = (
    "remove it, or have TMPDIR name a folder that no other user may write to (the spool of a "
    "journal must be a folder of the worker's user, with mode 0700)"
)


class RefusedError(PermissionError):
    """What is there is not ours to touch. The message names the way out."""


class UntrustedRootError(PermissionError):
    """A journal's folder could be another user's trap. The message names the way out."""


def not_a_folder(path: Path) -> UntrustedRootError:
    """Return the error for what is in the place of a private folder."""
    return UntrustedRootError(f"{path} is not a folder: {_PRIVATE_WAY_OUT}")


def check_private(status: os.stat_result, path: Path) -> None:
    """Refuse a folder that is not this user's alone.

    Raises:
        UntrustedRootError: It is not.
    """
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        raise UntrustedRootError(f"{path} {_owner(status)}: {_PRIVATE_WAY_OUT}")


def check_shared(status: os.stat_result, path: Path) -> None:
    """Refuse a folder that anyone could have made for us.

    Raises:
        UntrustedRootError: It is one.
    """
    if not _is_trusted_owner(status) and status.st_mode & stat.S_IWOTH:
        raise UntrustedRootError(
            f"{path} {_owner(status)}, so everyone may write to it: chown it to the worker's user, "
            f"who is {os.geteuid()}, or take that right away (chmod o-w)"
        )


def check_way(path: Path) -> None:
    """Refuse to reach a shared folder through the link of another user.

    Raises:
        UntrustedRootError: The path is one.
        OSError: There is nothing.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) and not _is_trusted_owner(status):
        raise UntrustedRootError(
            f"{path} is a symbolic link of user {status.st_uid}: remove it, or have "
            "sqs_heartbeat_journal name the folder itself"
        )


def refuse_link(status: os.stat_result, path: Path) -> None:
    """Refuse a symbolic link below the root.

    Raises:
        RefusedError: It is one.
    """
    if stat.S_ISLNK(status.st_mode):
        raise RefusedError(f"{str(path)!r} is a symbolic link: remove it, if it is none of yours")


def refuse_others(status: os.stat_result, path: Path) -> None:
    """Refuse whatever is no plain file of this user's own, or has a second name elsewhere.

    Raises:
        RefusedError: It is.
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
