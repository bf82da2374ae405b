"""Checks, before anything is read, that a folder is a journal with events of some days."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX
from celery_sqs_heartbeat.journal.kinds import (
    Kind,
    WrongPath,
    day_folders,
    day_name,
    entries_if_any,
    is_segment,
    kind_of,
    range_text,
    unreadable,
)

#: A day in a folder's name. Python itself accepts other forms of ISO 8601, too.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
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


def check_segments(journal: Path, span: Span, *, closed: bool = False) -> None:
    """Refuse a journal without events of these days.

    Args:
        closed: Whether only closed segments count.

    Raises:
        WrongPath: A part of it can't be read, or all of its segments are empty.
        NothingFound: It has none.
    """
    days = day_folders(journal)
    dates = [_date_of(day, journal) for day in days]
    within = [day for day, date in zip(days, dates, strict=True) if date in span]
    found = [each for day in within for each in _segments(day)]
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


def wrong_kind(given: str, kind: Kind, wanted: str, way_out: str) -> WrongPath:
    """Return the error about a path that is another kind than expected."""
    return WrongPath(f"{given!r} {kind.value}, where {wanted} is expected: {way_out}")


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


def _date_of(day: Path, journal: Path) -> datetime.date:
    try:
        return date_of(day_name(day))
    except ValueError as error:
        raise WrongPath(f"{str(journal)!r} {error}") from None


def _segments(day: Path) -> Iterator[tuple[str, int]]:
    """Yield the name of each segment, and its size in bytes."""
    for worker in entries_if_any(day):
        for name in entries_if_any(day / worker):
            if is_segment(name):
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
