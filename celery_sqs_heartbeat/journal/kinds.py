"""Decides whether a folder of this machine is a journal, a warehouse, or neither.

It uses names only, and reads no file. `NAME/dt=YYYY-MM-DD` is a table's folder.
`dt=YYYY-MM-DD/worker=WID` is a journal's folder, which contains segments or nothing yet. The
pipeline makes a warehouse from a journal, so users may confuse the two: the errors name the kind.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from celery_sqs_heartbeat.journal.folder import is_segment
from celery_sqs_heartbeat.journal.listing import DAY, entries, entries_if_any, unreadable

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
