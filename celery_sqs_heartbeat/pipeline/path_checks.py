"""Checks a command's paths before Spark starts or anything is read.

It checks folders of this machine only. Spark finds faults of URLs and on a cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from itertools import permutations
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import NothingFound
from celery_sqs_heartbeat.journal import checking
from celery_sqs_heartbeat.journal.checking import (
    GIVE_JOURNAL,
    Kind,
    check_given,
    check_segments,
    date_of,
    day_folders,
    entries,
    kind_of,
    local_folder,
    range_text,
    unreadable,
    wrong_kind,
)
from celery_sqs_heartbeat.pipeline.faults import PipelineError
from celery_sqs_heartbeat.pipeline.schema import TABLES, WORKERS, Table

#: Ways out for a path that is neither a journal nor a warehouse.
_NEITHER = {Kind.TABLE: "give its parent folder", Kind.DAY: "give its parent folder"}
_OF_PIPELINE = f"{GIVE_JOURNAL}, or the --warehouse of the pipeline's run"
_OWN_FOLDER = "give a separate folder, which may be new"
_MODES = {"effective_ids": os.access in os.supports_effective_ids}
_RUN = "python -m celery_sqs_heartbeat.pipeline run"
_URL = re.compile(r"(?:([a-z][a-z0-9+.-]*):(?=/))?(.*)", re.IGNORECASE | re.DOTALL)
#: A Parquet file ends with its metadata, the metadata's length in 4 bytes, and this.
_MAGIC = b"PAR1"
_TAIL = 4 + len(_MAGIC)


def here(path: str) -> Path | None:
    """Return the folder if it is on this machine, else None.

    If Spark runs on a cluster, a path without a scheme is in the cluster's file system.

    Raises:
        WrongPath: The path is empty.
    """
    check_given(path)
    remote = os.environ.get("SPARK_REMOTE", "local")
    on_cluster = "PYSPARK_GATEWAY_PORT" in os.environ or not remote.startswith("local")
    return None if on_cluster and not path.startswith("file:") else local_folder(path)


def check_journal(journal: str, span: Span) -> None:
    """Refuse a path that is not a journal with events of the requested days.

    Raises:
        WrongPath: It is something else, or can't be read.
        NothingFound: It has no events of these days.
    """
    folder = here(journal)
    if folder is not None:
        checking.check_journal(folder, journal, span)


def check_source(source: str, span: Span, tables: Collection[Table]) -> bool | None:
    """Refuse a path that is neither a journal nor a warehouse. Return whether it is a journal.

    Arguments and errors are the same as for `check_journal`.

    Args:
        tables: The tables that are read from a warehouse.

    Returns:
        None for a path that is not on this machine.
    """
    folder = here(source)
    if folder is None:
        return None
    kind = kind_of(folder)
    if kind is Kind.JOURNAL:
        check_segments(folder, span)
    elif kind is Kind.WAREHOUSE:
        _check_tables(folder, tables, span)
    else:
        way_out = _NEITHER.get(kind, _OF_PIPELINE)
        raise wrong_kind(source, kind, "a journal or a warehouse", way_out)
    return kind is Kind.JOURNAL


def check_target(warehouse: str, span: Span) -> None:
    """Refuse a path that is not a writable warehouse, and can't become one.

    Args:
        span: The days whose existing rows are read, too.

    Raises:
        WrongPath: It is something else, or can't be read.
        PipelineError: It can't be written, or another version wrote it.
    """
    folder = here(warehouse)
    if folder is None:
        return
    kind = kind_of(folder)
    if kind not in (Kind.MISSING, Kind.EMPTY, Kind.WAREHOUSE):
        raise wrong_kind(warehouse, kind, "a warehouse", _OWN_FOLDER)
    there = [table for table in TABLES.values() if (folder / table.name).is_dir()]
    for each in (folder, *(folder / table.name for table in there)):
        _check_writable(each)
    for table in there:
        _check_files(folder / table.name, table, span)


def check_apart(**places: str) -> None:
    """Refuse places that are the same, or one inside another.

    Spark reads every folder in a journal as a part of it, so tables there make it unreadable.

    Args:
        places: Paths and URLs by name: journal and warehouse.

    Raises:
        PipelineError: Two of them are not separate, or one is empty.
    """
    parts = {what: _parts(path) for what, path in places.items()}
    for inner, outer in permutations(places, 2):
        if parts[inner][: len(parts[outer])] == parts[outer]:
            relation = "is the same place as" if parts[inner] == parts[outer] else "is in"
            raise PipelineError(
                f"the {inner} {places[inner]!r} {relation} the {outer} {places[outer]!r}: give "
                "each a separate folder outside of the others"
            )


def _check_tables(warehouse: Path, tables: Collection[Table], span: Span) -> None:
    """Refuse a warehouse without these tables and days, as this version writes them.

    Raises:
        PipelineError: A table is missing, damaged or from another version.
        WrongPath: A table can't be read.
        NothingFound: It has no rows of these days.
    """
    for table in tables:
        if not (warehouse / table.name).is_dir():
            raise PipelineError(
                f"the warehouse {str(warehouse)!r} has no table {table.name}: `{_RUN}` writes all "
                "tables; or give the journal"
            )
        _check_files(warehouse / table.name, table, span)
    days = day_folders(warehouse / WORKERS.name)
    if not any(_is_in(day, span) for day in days):
        has = f"its days are {range_text(days)}" if days else "its tables are empty"
        rows = f"no rows {span}".rstrip()
        raise NothingFound(f"the warehouse {str(warehouse)!r} has {rows}: {has}")


def _check_files(folder: Path, table: Table, span: Span) -> None:
    """Refuse a table with a damaged file of these days, or one of another version."""
    within = [day for day in day_folders(folder) if _is_in(day, span)]
    for file in [day / name for day in within for name in entries(day)]:
        try:
            metadata = _metadata_of(file)
        except FileNotFoundError:
            # Its day was rewritten just now.
            continue
        except OSError as error:
            raise unreadable(file, error) from None
        if metadata is None:
            raise PipelineError(
                f"{str(file)!r} is not a complete Parquet file: remove {str(file.parent)!r} and "
                f"build that day again with `{_RUN}`"
            )
        for column in table.columns:
            # In Thrift's compact protocol, a name is its length, then its bytes.
            if bytes([len(column.name)]) + column.name.encode() not in metadata:
                raise PipelineError(
                    f"{str(file)!r} has no column {column.name}: another version of "
                    f"celery-sqs-heartbeat wrote it; build the tables again with `{_RUN}`, into a "
                    "new folder"
                )


def _metadata_of(file: Path) -> bytes | None:
    """Return the metadata at the end of a Parquet file; None if it is none, or was cut.

    Raises:
        OSError: It can't be read.
    """
    with file.open("rb") as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(max(0, size - _TAIL))
        tail = source.read()
        length = int.from_bytes(tail[:4], "little")
        if not tail.endswith(_MAGIC) or length + _TAIL > size:
            return None
        source.seek(size - _TAIL - length)
        return source.read(length)


def _is_in(day: Path, span: Span) -> bool:
    """Return whether a day's folder is of the requested days.

    Raises:
        PipelineError: The folder's name is not a valid day.
    """
    try:
        return date_of(day.name.removeprefix(checking.DAY)) in span
    except ValueError as error:
        raise PipelineError(f"{str(day.parent)!r} {error}") from None


def _check_writable(folder: Path) -> None:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise PipelineError(
            f"the warehouse {str(folder)!r} can't be written: {str(there)!r} is a file; "
            f"{_OWN_FOLDER}"
        )
    if not os.access(there, os.W_OK | os.X_OK, **_MODES):
        raise PipelineError(
            f"the warehouse {str(folder)!r} can't be written: {str(there)!r} is not writable for "
            "this user; give a writable folder"
        )


def _parts(path: str) -> tuple[str, ...]:
    """Return the names that lead to a place. For a folder of this machine, links are resolved."""
    folder = here(path)
    if folder is not None:
        return folder.resolve().parts
    match = _URL.fullmatch(path)
    assert match is not None
    # Both names mean S3: its own, and that of Spark's connector.
    scheme = (match[1] or "").lower().replace("s3a", "s3")
    return (scheme, *(name for name in match[2].split("/") if name not in ("", ".")))
