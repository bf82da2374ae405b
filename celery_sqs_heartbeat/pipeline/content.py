"""Looks into the folders of a journal or of a warehouse for what its days lack."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.journal.layout import CLOSED_SUFFIX, is_segment
from celery_sqs_heartbeat.pipeline.days import Span, day_of_file, no_day
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.footers import DamagedFile, missing_columns
from celery_sqs_heartbeat.pipeline.kinds import entries, unreadable
from celery_sqs_heartbeat.pipeline.schema import PARTITION, WORKERS, Table

_RUN = "python -m celery_sqs_heartbeat.pipeline run"


def check_segments(journal: Path, span: Span, *, closed: bool = False) -> None:
    """Let a journal pass that has events of some of these days.

    Args:
        closed: Whether open segments do not count.

    Raises:
        PipelineError: A part of them can't be read, or nothing is in any.
        NothingFound: It has none.
    """
    days = list(_days(journal))
    for day in days:
        if day_of_file(f"{day}/") is None:
            raise no_day(str(journal), day.name.removeprefix(f"{PARTITION}="))
    found = [each for day in days if _is_in(day, span) for each in _segments(day)]
    sizes = [size for name, size in found if name.endswith(CLOSED_SUFFIX) or not closed]
    if sum(sizes):
        return
    where, limits = f"the journal {str(journal)!r} has", str(span)
    if any(name.endswith(CLOSED_SUFFIX) for name, _ in found):
        raise PipelineError(
            f"{where} nothing {limits} that can be read: its segments are empty files, and a "
            "worker closes none that is: get a whole copy".replace("  ", " ")
        )
    if limits and not sizes:
        raise NothingFound(f"{where} no segments {limits}: its days are {_names(days)}")
    lack = "events" if sizes else "closed segments" if closed else "segments"
    raise NothingFound(f"{where} no {lack} yet: let its workers go on, and try again")


def check_columns(
    warehouse: Path, tables: Collection[Table], span: Span, *, is_read: bool = True
) -> None:
    """Let a warehouse pass whose tables are there, as this version writes them.

    Args:
        is_read: Whether it is an error if a table is missing, or has no rows of these days.

    Raises:
        PipelineError: A table is missing, damaged or of another version.
        NothingFound: It has no rows of these days.
    """
    for table in tables:
        folder = warehouse / table.name
        if is_read and not folder.is_dir():
            raise PipelineError(
                f"the warehouse {str(warehouse)!r} has no table {table.name}: `{_RUN}` writes all "
                "tables; or give the journal"
            )
        for day in _days(folder):
            if _is_in(day, span):
                _check_files(day, table)
    days = list(_days(warehouse / WORKERS.name))
    if is_read and not any(_is_in(day, span) for day in days):
        has = f"its days are {_names(days)}" if days else "its tables are empty"
        rows = f"no rows {span}".rstrip()
        raise NothingFound(f"the warehouse {str(warehouse)!r} has {rows}: {has}")


def _check_files(day: Path, table: Table) -> None:
    # The day is the folder's name.
    columns = tuple(name for name in table.names if name != PARTITION)
    for name in _entries(day):
        file = day / name
        try:
            lacks = missing_columns(file, columns)
        except DamagedFile:
            raise PipelineError(
                f"{str(file)!r} is no whole Parquet file: remove {str(day)!r} and build that day "
                f"again with `{_RUN}`"
            ) from None
        except FileNotFoundError:
            # Its day was written again just now.
            continue
        except OSError as error:
            raise unreadable(file, error) from None
        if lacks:
            raise PipelineError(
                f"{str(file)!r} has no column {lacks[0]}: another version of celery-sqs-heartbeat "
                f"wrote it; build the tables again with `{_RUN}`, into a new folder"
            )


def _segments(day: Path) -> Iterator[tuple[str, int]]:
    """Yield the name of each segment, and its size in bytes."""
    for worker in _entries(day):
        for name in _entries(day / worker):
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


def _days(folder: Path) -> Iterator[Path]:
    """Yield the folders of days, in order."""
    names = sorted(name for name in _entries(folder) if name.startswith(f"{PARTITION}="))
    yield from (folder / name for name in names)


def _entries(folder: Path) -> list[str]:
    try:
        return list(entries(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from None


def _is_in(folder: Path, span: Span) -> bool:
    day = day_of_file(f"{folder.parent}/{folder.name}/")
    return day is not None and day in span


def _names(days: list[Path]) -> str:
    names = [day.name.removeprefix(f"{PARTITION}=") for day in days]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if names else ""
