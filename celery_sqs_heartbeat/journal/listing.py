"""Lists the folders of a journal, or of the tables that were made from it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: The start of the name of a day's folder.
DAY = "dt="
#: Prefixes of entries that Spark, Sail and file systems put beside tables and days.
_ASIDE = (".", "_", "lost+found")


class WrongPath(SqsHeartbeatError):
    """A path is not what a command needs, or can't be read. The message has the way out."""


def entries(folder: Path) -> Iterator[str]:
    """Yield the names of a folder's entries, without those of `_ASIDE`.

    Raises:
        OSError: It can't be read.
    """
    with os.scandir(folder) as found:
        yield from (each.name for each in found if not each.name.startswith(_ASIDE))


def entries_if_any(folder: Path) -> Iterator[str]:
    """Yield the same as `entries`, or nothing if the folder does not exist.

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
    """Return the day in a folder's name."""
    return folder.name.removeprefix(DAY)


def range_text(days: Sequence[Path]) -> str:
    """Return the first and the last day of folders, for messages."""
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
