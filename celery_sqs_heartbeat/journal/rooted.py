"""The folder of a journal, entered only if no other user could have set a trap (`trust`)."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from celery_sqs_heartbeat.journal.folders import (
    Folder,
    RefusedError,
    check_private,
    check_shared,
    check_way,
    not_a_folder,
)
from celery_sqs_heartbeat.journal.layout import ordered

logger = logging.getLogger(__name__)


class Root:
    """A journal's folder, which checks what it trusts. Threads may share it.

    Args:
        path: The folder that is checked each time.
        below: The folders in it that lead to those of the days.
        is_private: Whether it must belong to this user only: not reached by a link, mode 0700.
    """

    def __init__(self, path: Path, below: tuple[str, ...] = (), *, is_private: bool) -> None:
        self._path = path
        self._below = below
        self._is_private = is_private
        self._has_refused = False

    @property
    def top(self) -> Path:
        """The folder that is checked each time, for messages and for probes."""
        return self._path

    @property
    def folder(self) -> Path:
        """The folder of the days, for messages."""
        return self._path.joinpath(*self._below)

    @contextlib.contextmanager
    def opened(self, *parts: str, make: bool = False) -> Iterator[Folder]:
        """Provide the folder that these parts lead to, below `folder`, open and checked.

        Args:
            make: Whether folders that are missing are made.

        Raises:
            UntrustedRootError: Another user could have set a trap.
            RefusedError: A link leads there.
            OSError: It is missing, or can't be made or entered.
        """
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(self._checked(make=make))
            for part in (*self._below, *parts):
                folder = stack.enter_context(folder.enter(part, make=make))
            yield folder

    def segments(self, suffix: str, day: str = "*") -> Iterator[tuple[Folder, Path]]:
        """Yield each segment below `folder` with its own folder, open until the next one.

        Linked folders are left out. If the root does not exist yet, it yields nothing.

        Raises:
            OSError: The root can't be trusted or entered.
        """
        try:
            with self.opened() as root:
                for days in self._entered(root, f"dt={day}"):
                    for worker in self._entered(days, "worker=*"):
                        for name in _matching(worker, f"seg-*{suffix}"):
                            yield worker, Path(days.path.name, worker.path.name, name)
        except FileNotFoundError:
            return

    def paths(self, suffix: str, day: str = "*") -> list[Path]:
        """Return the paths that `segments` yields, in order, relative to `folder`."""
        return ordered(path for _, path in self.segments(suffix, day))

    def note(self, error: OSError) -> None:
        """Log the first refusal only, because a trap may be laid a million times."""
        if isinstance(error, RefusedError) and not self._has_refused:
            self._has_refused = True
            logger.warning(
                "sqs-heartbeat: the journal does not touch a file or folder: %s. Further ones "
                "below %s are not logged",
                error,
                self.folder,
            )

    def _checked(self, *, make: bool) -> Folder:
        mode = 0o700 if self._is_private else 0o770
        if make:
            with contextlib.suppress(FileExistsError):
                self._path.mkdir(mode=mode, parents=True, exist_ok=True)
        if not self._is_private:
            check_way(self._path)
        try:
            folder = Folder.at(self._path, mode, follow=not self._is_private)
        except OSError as error:
            if self._is_private and error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise not_a_folder(self._path) from None
            raise
        try:
            (check_private if self._is_private else check_shared)(folder.status(), folder.path)
        except BaseException:
            with folder:
                raise
        return folder

    def _entered(self, folder: Folder, pattern: str) -> Iterator[Folder]:
        for name in _matching(folder, pattern):
            try:
                inner = folder.enter(name)
            except OSError as error:
                self.note(error)
                continue
            with inner:
                yield inner


def _matching(folder: Folder, pattern: str) -> list[str]:
    """Return the names that match; none if the folder may not be read."""
    with contextlib.suppress(OSError):
        return [name for name in folder.names() if fnmatchcase(name, pattern)]
    return []
