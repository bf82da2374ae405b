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
    """What a recovery did.

    Attributes:
        segments: That were closed.
        torn: Lines that were kept out, as their writer had not finished them.
    """

    segments: int = 0
    torn: int = 0


def recover(root: Root, days: Iterable[str] = ("*",)) -> Recovered:
    """Close every open segment of this user's that no one has locked: its writer is no more.

    One that can't be closed stays as it is; so does everything where the file system has
    no locks, as no one can tell there who is alive.

    Args:
        days: Look at these only: a folder of many days takes long to list.

    Raises:
        OSError: The root is not to be trusted, or can't be entered.
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
        # Another may have closed it between the two.
        if not os.path.samestat(os.fstat(file.fileno()), folder.look(name)):
            raise FileNotFoundError(name)
        torn = pack(file, folder, closed_name(name))
        folder.remove(name)
        return torn
    finally:
        locks.close(file)
