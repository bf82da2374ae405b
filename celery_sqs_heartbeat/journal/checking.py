"""Checks, before anything is read, that a path is a journal with events of some days.

What a folder is shows in names only: no file is read. `NAME/dt=YYYY-MM-DD` is a table's folder.
`dt=YYYY-MM-DD/worker=WID` is a journal's folder, which contains segments or nothing yet. The
pipeline makes a warehouse from a journal, so users may confuse the two: the errors name the kind.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, OPEN_SUFFIX

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


def check_journal(folder: Path, given: str, span: Span, *, closed: bool = False) -> None:
    """Refuse a folder that is not a journal with events of some days.

    Args:
        folder: The journal.
        given: The path as the user wrote it.
        span: The requested days.
        closed: Whether only closed segments count.

    Raises:
        WrongPath: It is something else, or can't be read.
        NothingFound: It has no events of these days.
    """
    kind = kind_of(folder)
    if not kind.has_journal:
        raise wrong_kind(given, kind, "a journal", _WAYS_OUT.get(kind, GIVE_JOURNAL))
    check_segments(folder, span, closed=closed)


def wrong_kind(given: str, kind: Kind, wanted: str, way_out: str) -> WrongPath:
    """Return the error about a path that is another kind than expected."""
    return WrongPath(f"{given!r} {kind.value}, where {wanted} is expected: {way_out}")


def check_segments(journal: Path, span: Span, *, closed: bool = False) -> None:
    """Refuse a journal without events of these days.

    Args:
        closed: Whether only closed segments count.

    Raises:
        WrongPath: A part of it can't be read, or all of its segments are empty.
        NothingFound: It has none.
    """
    days = day_folders(journal)
    found = [each for day in days if _date_of(day, journal) in span for each in _segments(day)]
    sizes = [size for name, size in found if name.endswith(CLOSED_SUFFIX) or not closed]
    if sum(sizes):
        return
    where, limits = f"the journal {str(journal)!r} has", str(span)
    if any(name.endswith(CLOSED_SUFFIX) for name, _ in found):
        raise WrongPath(
            f"{where} nothing {limits} that can be read: its segments are empty files, which "
            "workers never write: get a complete copy".replace("  ", " ")
        )
    if limits and not sizes:
        raise NothingFound(f"{where} no segments {limits}: its days are {range_text(days)}")
    lack = "events" if sizes else "closed segments" if closed else "segments"
    raise NothingFound(f"{where} no {lack} yet: wait for its workers, and try again")


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
    if not days:
        return None
    paths = [day / name for day in days for name in entries_if_any(day)]
    if any(map(_has_segments, paths)):
        return Kind.JOURNAL
    if any(path.suffix == ".parquet" for path in paths):
        return Kind.TABLE
    # Without anything, their content was moved away, or is not written yet.
    return Kind.OTHER if paths else Kind.JOURNAL


def _has_segments(folder: Path) -> bool:
    """Return whether this is the folder of a worker, which has segments, or nothing yet."""
    if not folder.name.startswith(_WORKER):
        return False
    names = list(entries_if_any(folder))
    return not names or any(map(_is_segment, names))


def _is_table(folder: Path) -> bool:
    # A folder without a day has no rows.
    return folder.is_dir() and all(name.startswith(DAY) for name in entries_if_any(folder))


def _is_segment(name: str) -> bool:
    return name.startswith("seg-") and name.endswith((OPEN_SUFFIX, CLOSED_SUFFIX))


def _segments(day: Path) -> Iterator[tuple[str, int]]:
    """Yield the name of each segment, and its size in bytes."""
    for worker in entries_if_any(day):
        for name in filter(_is_segment, entries_if_any(day / worker)):
            yield name, _size(day / worker / name)


def _size(segment: Path) -> int:
    try:
        # Without O_NONBLOCK, opening a pipe would block.
        descriptor = os.open(segment, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        # It was closed just now, and its lines are in a file of another name.
        return 1
    except OSError as error:
        raise unreadable(segment, error) from None
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


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


def unreadable(path: Path, error: OSError) -> WrongPath:
    """Return the error about a file or folder that can't be read."""
    way_out = (
        ": run this as the workers' user, or as a user of their group"
        if isinstance(error, PermissionError)
        else ""
    )
    return WrongPath(f"{str(path)!r} can't be read: {error.strerror}{way_out}")


def day_folders(folder: Path) -> list[Path]:
    """Return the folders of days, in order.

    Raises:
        WrongPath: It can't be read.
    """
    return [folder / name for name in sorted(entries_if_any(folder)) if name.startswith(DAY)]


def range_text(days: Sequence[Path]) -> str:
    """Return the first and the last day of folders, for messages."""
    ends = (*days[:1], *days[1:][-1:])
    return " to ".join(day.name.removeprefix(DAY) for day in ends)


def _date_of(day: Path, journal: Path) -> datetime.date:
    try:
        return date_of(day.name.removeprefix(DAY))
    except ValueError as error:
        raise WrongPath(f"{str(journal)!r} {error}") from None


def date_of(day: str) -> datetime.date:
    """Return the date of a folder's name, without its `dt=`.

    Raises:
        ValueError: It is not a valid day. The message continues a sentence that starts with the
            folder's path.
    """
    try:
        if _DATE.fullmatch(day):
            return datetime.date.fromisoformat(day)
    except ValueError:
        pass
    raise ValueError(no_day_text(day))


def no_day_text(day: str) -> str:
    """Return the fault of a path that has a folder with an invalid day, and the way out."""
    return f"has a folder dt={day}, which is not a valid day: move it away"
