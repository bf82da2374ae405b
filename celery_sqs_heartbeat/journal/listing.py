"""Lists what is in the folders of a journal or of the tables that were made of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: How the name of a day's folder begins.
DAY = "dt="
#: What Spark, Sail and file systems put beside tables and days.
_ASIDE = (".", "_", "lost+found")


class WrongPath(SqsHeartbeatError):
    """What a command was given is not what it needs, or can't be read. Names the way out."""


def entries(folder: Path) -> Iterator[str]:
    """Yield the names of what is in a folder, without what is only put beside.

    Raises:
        OSError: It can't be read.
    """
    with os.scandir(folder) as found:
        yield from (each.name for each in found if not each.name.startswith(_ASIDE))


def entries_if_any(folder: Path) -> Iterator[str]:
    """Yield the same; nothing where there is no such folder.

    Raises:
        WrongPath: It can't be read.
    """
    try:
        yield from entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unreadable(folder, error) from None


def day_folders(folder: Path) -> list[Path]:
    """Return the folders of days, in order.

    Raises:
        WrongPath: It can't be read.
    """
    return [folder / name for name in sorted(entries_if_any(folder)) if name.startswith(DAY)]


def day_name(folder: Path) -> str:
    """Return the day whose folder it is, as the name has it."""
    return folder.name.removeprefix(DAY)


def range_text(days: Sequence[Path]) -> str:
    """Return the days of folders for people: the first and the last."""
    names = [day_name(day) for day in days]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if names else ""


def unreadable(path: Path, error: OSError) -> WrongPath:
    """Return the error about a file or folder that can't be read."""
    way_out = (
        ": run this as the workers' user, or as a user of their group"
        if isinstance(error, PermissionError)
        else ""
    )
    return WrongPath(f"{str(path)!r} can't be read: {error.strerror}{way_out}")
