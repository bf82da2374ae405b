"""Checks that a folder is a journal with events of some days, before anything is read."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.journal.kinds import Kind, kind_of
from celery_sqs_heartbeat.journal.layout import CLOSED_SUFFIX, date_of, is_segment
from celery_sqs_heartbeat.journal.listing import (
    WrongPath,
    day_folders,
    day_name,
    entries_if_any,
    range_text,
    unreadable,
)

#: The way out for what is no journal.
GIVE_JOURNAL = "give the folder or URL that sqs_heartbeat_journal names"
#: For some, there is a shorter one.
_WAYS_OUT = {
    Kind.WAREHOUSE: f"report and tune read it; elsewhere {GIVE_JOURNAL}",
    Kind.TABLE: "report and tune read the warehouse, which is the folder above",
    Kind.DAY: "give the folder above",
}


def check_given(path: str) -> None:
    """Let a path pass that is not empty.

    Raises:
        WrongPath: It is. It would be the working folder, as where a shell's variable is not set.
    """
    if not path.strip():
        raise WrongPath(f"the path {path!r} is empty: give a folder or URL")


def check_journal(folder: Path, given: str, span: Span, *, closed: bool = False) -> None:
    """Let a journal pass that has events of some days.

    Args:
        folder: Where it is.
        given: The path as the user wrote it.
        span: The days that are wanted.
        closed: Whether open segments do not count.

    Raises:
        WrongPath: It is something else, or can't be read.
        NothingFound: It has no events of these days.
    """
    kind = kind_of(folder)
    if not kind.has_journal:
        raise wrong_kind(given, kind, "a journal", _WAYS_OUT.get(kind, GIVE_JOURNAL))
    check_segments(folder, span, closed=closed)


def check_segments(journal: Path, span: Span, *, closed: bool = False) -> None:
    """Let a journal pass that has events of some of these days.

    Args:
        closed: Whether open segments do not count.

    Raises:
        WrongPath: A part of them can't be read, or nothing is in any.
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
            f"{where} nothing {limits} that can be read: its segments are empty files, and a "
            "worker closes none that is: get a whole copy".replace("  ", " ")
        )
    if limits and not sizes:
        raise NothingFound(f"{where} no segments {limits}: its days are {range_text(days)}")
    lack = "events" if sizes else "closed segments" if closed else "segments"
    raise NothingFound(f"{where} no {lack} yet: let its workers go on, and try again")


def wrong_kind(given: str, kind: Kind, wanted: str, way_out: str) -> WrongPath:
    """Return the error about a path at which there is something else than is wanted."""
    return WrongPath(f"{given!r} {kind.value}, where {wanted} is expected: {way_out}")


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
        # A pipe would keep the one that opens it waiting.
        descriptor = os.open(segment, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        # Closed just now: what is in it is there under its other name.
        return 1
    except OSError as error:
        raise unreadable(segment, error) from None
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
