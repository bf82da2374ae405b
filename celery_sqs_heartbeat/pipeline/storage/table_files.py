"""Checks the folders of a warehouse for missing tables, columns and days."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.journal.checking import (
    day_folders,
    entries_if_any,
    range_text,
    unreadable,
)
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import PARTITION, WORKERS, Table
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.footers import DamagedFile, missing_columns

_RUN = "python -m celery_sqs_heartbeat.pipeline run"


def check_columns(
    warehouse: Path, tables: Collection[Table], span: Span, *, is_read: bool = True
) -> None:
    """Refuse a warehouse whose tables are not as this version writes them.

    Args:
        is_read: Whether a missing table, or one without rows of these days, is an error.

    Raises:
        PipelineError: A table is missing, damaged or from another version.
        WrongPath: A table can't be read.
        NothingFound: It has no rows of these days.
    """
    for table in tables:
        folder = warehouse / table.name
        if is_read and not folder.is_dir():
            raise PipelineError(
                f"the warehouse {str(warehouse)!r} has no table {table.name}: `{_RUN}` writes all "
                "tables; or give the journal"
            )
        for day in day_folders(folder):
            if _is_in(day, span):
                _check_files(day, table)
    days = day_folders(warehouse / WORKERS.name)
    if is_read and not any(_is_in(day, span) for day in days):
        has = f"its days are {range_text(days)}" if days else "its tables are empty"
        rows = f"no rows {span}".rstrip()
        raise NothingFound(f"the warehouse {str(warehouse)!r} has {rows}: {has}")


def _check_files(day: Path, table: Table) -> None:
    # The day is the folder's name.
    columns = tuple(name for name in table.names if name != PARTITION)
    for name in entries_if_any(day):
        file = day / name
        try:
            lacks = missing_columns(file, columns)
        except DamagedFile:
            raise PipelineError(
                f"{str(file)!r} is not a complete Parquet file: remove {str(day)!r} and build that "
                f"day again with `{_RUN}`"
            ) from None
        except FileNotFoundError:
            # Its day was rewritten just now.
            continue
        except OSError as error:
            raise unreadable(file, error) from None
        if lacks:
            raise PipelineError(
                f"{str(file)!r} has no column {lacks[0]}: another version of celery-sqs-heartbeat "
                f"wrote it; build the tables again with `{_RUN}`, into a new folder"
            )


def _is_in(folder: Path, span: Span) -> bool:
    day = day_of_file(f"{folder.parent}/{folder.name}/")
    return day is not None and day in span
