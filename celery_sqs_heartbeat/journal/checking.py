"""Checks, before anything is read, that a path is a journal with events of some days.

What a folder is shows in names only: no file is read. `NAME/dt=YYYY-MM-DD` is a table's folder.
`dt=YYYY-MM-DD/worker=WID` is a journal's folder. The pipeline makes a warehouse from a journal, so
users may confuse the two: the errors name the kind.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, OPEN_SUFFIX, opened

#: Tables of the pipeline that each warehouse has.
TABLE_NAMES = ("events", "workers")
#: The start of the names of a day's folder, and of a worker's folder in it.
DAY, _WORKER = "dt=", "worker="
#: Prefixes of entries that Spark, Sail and file systems put beside tables and days.
_ASIDE = (".", "_", "lost+found")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)
#: A folder of this machine, as a URL: `file:/F`, `file:///F` or `file://localhost/F`.
_FILE_URL = re.compile(r"file:(?://(?:localhost)?)?(?=/(?!/))", re.IGNORECASE)
#: A day in a folder's name. Python itself accepts other forms of ISO 8601, too.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class WrongPath(SqsHeartbeatError):
    """A path is not what a command needs, or can't be read. The message has the way out."""


class Kind(Enum):
    """The kind of a path, as an error message describes it."""

    MISSING = "does not exist"
    FILE = "is a file"
    EMPTY = "is an empty folder"
    JOURNAL = "is a journal"
    WAREHOUSE = "is a warehouse"
    TABLE = "is one table of a warehouse"
    DAY = "is one day of a journal"
    OTHER = "is a folder that contains neither a journal nor a warehouse"


#: The way out if a path is not a journal.
GIVE_JOURNAL = "give the folder or URL that sqs_heartbeat_journal names"
#: Shorter ways out for some kinds.
_WAYS_OUT = {
    Kind.WAREHOUSE: f"only report and tune read it; otherwise {GIVE_JOURNAL}",
    Kind.TABLE: "report and tune read the warehouse, which is its parent folder",
    Kind.DAY: "give its parent folder",
}


def check_given(path: str) -> None:
    """Refuse an empty path. It would mean the working folder, if a shell variable is not set.

    Raises:
        WrongPath: The path is empty.
    """
    if not path.strip():
        raise WrongPath(f"the path {path!r} is empty: give a folder or URL")


def local_folder(path: str) -> Path | None:
    """Return a path, or a `file:` URL, as a folder of this machine; None for any other URL."""
    here = _FILE_URL.sub("", path, count=1)
    return None if _SCHEME.match(here) else Path(here)


def check_journal(folder: Path, given: str, span: Span) -> None:
    """Refuse a folder that is not a journal with events of some days.

    Args:
        folder: The journal.
        given: The path as the user wrote it.
        span: The requested days.

    Raises:
        WrongPath: It is something else, or can't be read.
        NothingFound: It has no events of these days.
    """
    kind = kind_of(folder)
    if kind is not Kind.JOURNAL:
        raise wrong_kind(given, kind, "a journal", _WAYS_OUT.get(kind, GIVE_JOURNAL))
    check_segments(folder, span)


def wrong_kind(given: str, kind: Kind, wanted: str, way_out: str) -> WrongPath:
    """Return the error about a path that is another kind than expected."""
    return WrongPath(f"{given!r} {kind.value}, where {wanted} is expected: {way_out}")


def check_segments(journal: Path, span: Span) -> None:
    """Refuse a journal without events of these days.

    Raises:
        WrongPath: A part of it can't be read, or all of its segments are empty.
        NothingFound: It has none.
    """
    days = day_folders(journal)
    found = [path for day in days if _date_of(day) in span for path in _segments(day)]
    if sum(map(_size, found)):
        return
    where, limits = f"the journal {str(journal)!r} has", str(span)
    if any(path.name.endswith(CLOSED_SUFFIX) for path in found):
        raise WrongPath(
            f"{where} nothing {limits} that can be read: its segments are empty files, which "
            "workers never write: get a complete copy".replace("  ", " ")
        )
    if limits and not found:
        raise NothingFound(f"{where} no segments {limits}: its days are {range_text(days)}")
    lack = "events" if found else "segments"
    raise NothingFound(f"{where} no {lack} yet: wait for its workers, and try again")


def kind_of(folder: Path) -> Kind:
    """Return the kind of a folder.

    Raises:
        WrongPath: It can't be read.
    """
    names, days = entries(folder), day_folders(folder)
    if not names:
        return Kind.EMPTY if folder.is_dir() else Kind.FILE if folder.exists() else Kind.MISSING
    inside = [day / name for day in days for name in entries(day)]
    # Without anything in its days, their content was moved away, or is not written yet.
    if any(path.name.startswith(_WORKER) for path in inside) or (days and not inside):
        return Kind.JOURNAL
    if any(_is_table(folder / name) for name in TABLE_NAMES if name in names):
        return Kind.WAREHOUSE
    if any(path.suffix == ".parquet" for path in inside):
        return Kind.TABLE
    return Kind.DAY if any(name.startswith(_WORKER) for name in names) else Kind.OTHER


def _is_table(folder: Path) -> bool:
    # A folder without a day has no rows.
    return folder.is_dir() and all(name.startswith(DAY) for name in entries(folder))


def _segments(day: Path) -> Iterator[Path]:
    for worker in entries(day):
        for name in entries(day / worker):
            if name.startswith("seg-") and name.endswith((OPEN_SUFFIX, CLOSED_SUFFIX)):
                yield day / worker / name


def _size(segment: Path) -> int:
    """Return the size in bytes of a segment that can be read."""
    try:
        with opened(segment) as file:
            return os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        # It was closed just now, and its lines are in a file of another name.
        return 1
    except OSError as error:
        raise unreadable(segment, error) from None


def entries(folder: Path) -> list[str]:
    """Return the names of a folder's entries without those of `_ASIDE`; none if it is no folder.

    Raises:
        WrongPath: It can't be read.
    """
    try:
        return [name for name in os.listdir(folder) if not name.startswith(_ASIDE)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from None


def unreadable(path: Path, error: OSError) -> WrongPath:
    """Return the error about a file or folder that can't be read."""
    is_denied = isinstance(error, PermissionError)
    way_out = ": run this as the workers' user, or as a user of their group" if is_denied else ""
    return WrongPath(f"{str(path)!r} can't be read: {error.strerror}{way_out}")


def day_folders(folder: Path) -> list[Path]:
    """Return the folders of days, in order.

    Raises:
        WrongPath: It can't be read.
    """
    return [folder / name for name in sorted(entries(folder)) if name.startswith(DAY)]


def range_text(days: Sequence[Path]) -> str:
    """Return the first and the last day of folders, for messages."""
    ends = (*days[:1], *days[1:][-1:])
    return " to ".join(day.name.removeprefix(DAY) for day in ends)


def _date_of(day: Path) -> datetime.date:
    try:
        return date_of(day.name.removeprefix(DAY))
    except ValueError as error:
        raise WrongPath(f"{str(day.parent)!r} {error}") from None


def date_of(day: str) -> datetime.date:
    """Return the date of a folder's name, without its `dt=`.

    Raises:
        ValueError: It is not a valid day. The message continues a sentence that starts with the
            folder's path.
    """
    with contextlib.suppress(ValueError):
        if _DATE.fullmatch(day):
            return datetime.date.fromisoformat(day)
    raise ValueError(no_day_text(day))


def no_day_text(day: str) -> str:
    """Return the fault of a path that has a folder with an invalid day, and the way out."""
    return f"has a folder dt={day}, which is not a valid day: move it away"
