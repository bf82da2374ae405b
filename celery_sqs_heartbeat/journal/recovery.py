"""Closes the segments of workers that died."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from celery_sqs_heartbeat.journal import locks
from celery_sqs_heartbeat.journal.folders import Folder
from celery_sqs_heartbeat.journal.layout import OPEN_SUFFIX, closed_name
from celery_sqs_heartbeat.journal.packing import pack
from celery_sqs_heartbeat.journal.rooted import Root


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
        locks.lock(file)
        # Another process may have closed it between opening and locking.
        if not os.path.samestat(os.fstat(file.fileno()), folder.look(name)):
            raise FileNotFoundError(name)
        torn = pack(file, folder, closed_name(name))
        folder.remove(name)
        return torn
    finally:
        locks.close(file)
