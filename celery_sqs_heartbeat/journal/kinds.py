"""Decides whether a folder of this machine is a journal, a warehouse, or neither.

It uses names only, and reads no file. `NAME/dt=YYYY-MM-DD` is a table's folder.
`dt=YYYY-MM-DD/worker=WID` is a journal's folder, which contains segments or nothing yet. The
pipeline makes a warehouse from a journal, so users may confuse the two: the errors name the kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, OPEN_SUFFIX

#: The start of the name of a day's folder.
DAY = "dt="
#: Prefixes of entries that Spark, Sail and file systems put beside tables and days.
_ASIDE = (".", "_", "lost+found")
#: The names of the pipeline's tables.
TABLE_NAMES = frozenset(
    {
        "attempts",
        "calls",
        "duplicates",
        "durations",
        "events",
        "group_stops",
        "in_flight",
        "recommendations",
        "recoveries",
        "rejects",
        "workers",
    }
)

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)
#: A folder of this machine, as a URL: `file:/F`, `file:///F` or `file://localhost/F`.
_FILE_URL = re.compile(r"file:(?://(?:localhost)?)?(?=/(?!/))", re.IGNORECASE)
_WORKER, _PARQUET = "worker=", ".parquet"


class Kind(Enum):
    """The kind of a path, as an error message describes it."""

    MISSING = "does not exist"
    FILE = "is a file"
    EMPTY = "is an empty folder"
    JOURNAL = "is a journal"
    WAREHOUSE = "is a warehouse"
    BOTH = "contains a journal and a warehouse"
    TABLE = "is one table of a warehouse"
    DAY = "is one day of a journal"
    OTHER = "is a folder that contains neither a journal nor a warehouse"

    @property
    def has_journal(self) -> bool:
        """Whether a journal can be read there."""
        return self in (Kind.JOURNAL, Kind.BOTH)

    @property
    def has_tables(self) -> bool:
        """Whether a warehouse can be read there."""
        return self in (Kind.WAREHOUSE, Kind.BOTH)


def local_folder(path: str) -> Path | None:
    """Return a path, or a `file:` URL, as a folder of this machine; None for any other URL."""
    here = _FILE_URL.sub("", path, count=1)
    return None if _SCHEME.match(here) else Path(here)


def kind_of(folder: Path) -> Kind:
    """Return the kind of a folder.

    Raises:
        WrongPath: It can't be read.
    """
    try:
        names = list(entries(folder))
    except FileNotFoundError:
        return Kind.MISSING
    except NotADirectoryError:
        return Kind.FILE
    except OSError as error:
        raise unreadable(folder, error) from None
    days = _kind_of_days([folder / name for name in names if name.startswith(DAY)])
    if any(_is_table(folder / name) for name in names if name in TABLE_NAMES):
        return Kind.BOTH if days is Kind.JOURNAL else Kind.WAREHOUSE
    if days is not None:
        return days
    if any(name.startswith(_WORKER) for name in names):
        return Kind.DAY
    return Kind.OTHER if names else Kind.EMPTY


def _kind_of_days(days: list[Path]) -> Kind | None:
    """Return what folders of days form: a journal, a table, or neither; None without any."""
    is_empty = True
    for day in days:
        for name in entries_if_any(day):
            if name.startswith(_WORKER) and _may_have_segments(day / name):
                return Kind.JOURNAL
            if name.endswith(_PARQUET):
                return Kind.TABLE
            is_empty = False
    if not days:
        return None
    # Their content was moved away, or is not written yet.
    return Kind.JOURNAL if is_empty else Kind.OTHER


def _may_have_segments(worker: Path) -> bool:
    names = list(entries_if_any(worker))
    return not names or any(map(is_segment, names))


def _is_table(folder: Path) -> bool:
    # A folder without a day has no rows.
    return folder.is_dir() and all(name.startswith(DAY) for name in entries_if_any(folder))


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


def is_segment(name: str) -> bool:
    """Return whether a file is a segment, open or closed, by its name."""
    return name.startswith("seg-") and name.endswith((OPEN_SUFFIX, CLOSED_SUFFIX))
