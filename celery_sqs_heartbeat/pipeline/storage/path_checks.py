"""Checks a command's paths before an engine starts or anything is read.

It checks folders of this machine only. The engine finds faults of URLs and on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.journal import checking
from celery_sqs_heartbeat.journal.checking import (
    GIVE_JOURNAL,
    Kind,
    check_given,
    check_segments,
    kind_of,
    local_folder,
    wrong_kind,
)
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import TABLES, Table
from celery_sqs_heartbeat.pipeline.storage.table_files import check_columns

#: Ways out for a path that is neither a journal nor a warehouse.
_NEITHER = {Kind.TABLE: "give its parent folder", Kind.DAY: "give its parent folder"}
_OF_PIPELINE = f"{GIVE_JOURNAL}, or the --warehouse of the pipeline's run"
_OWN_FOLDER = "give a separate folder, which may be new"
_MODES = {"effective_ids": os.access in os.supports_effective_ids}


def check_journal(
    journal: str, span: Span, *, is_here: bool | None = None, closed: bool = False
) -> None:
    """Refuse a path that is not a journal with events of these days.

    Args:
        span: The requested days.
        is_here: Whether it is read on this machine; None if that depends on Spark.
        closed: Whether only closed segments count.

    Raises:
        WrongPath: It is something else, or can't be read.
        NothingFound: It has no events of these days.
    """
    folder = here(journal, is_here)
    if folder is not None:
        checking.check_journal(folder, journal, span, closed=closed)


def check_source(
    source: str, span: Span, tables: Collection[Table], *, is_here: bool | None = None
) -> bool | None:
    """Refuse a path that is neither a journal nor a warehouse. Return whether it is a journal.

    Arguments and errors are the same as for `check_journal`.

    Args:
        tables: The tables that are read from a warehouse.

    Returns:
        None for a path that is not on this machine.
    """
    folder = here(source, is_here)
    if folder is None:
        return None
    kind = kind_of(folder)
    if kind.has_journal:
        check_segments(folder, span)
    elif kind.has_tables:
        check_columns(folder, tables, span)
    else:
        way_out = _NEITHER.get(kind, _OF_PIPELINE)
        raise wrong_kind(source, kind, "a journal or a warehouse", way_out)
    return kind.has_journal


def check_target(warehouse: str, span: Span, *, is_here: bool | None = None) -> None:
    """Refuse a path that is not a writable warehouse, and can't become one.

    Args:
        span: The days whose existing rows are read, too.

    Raises:
        WrongPath: It is something else, or can't be read.
        PipelineError: It can't be written, or another version wrote it.
    """
    folder = here(warehouse, is_here)
    if folder is None:
        return
    kind = kind_of(folder)
    if kind not in (Kind.MISSING, Kind.EMPTY) and not kind.has_tables:
        raise wrong_kind(warehouse, kind, "a warehouse", _OWN_FOLDER)
    there = [table for table in TABLES.values() if (folder / table.name).is_dir()]
    for each in (folder, *(folder / table.name for table in there)):
        _check_writable(each, "the warehouse")
    if there:
        check_columns(folder, there, span, is_read=False)


def check_checkpoint(checkpoint: str) -> None:
    """Refuse a path that is not a stream's checkpoint, and can't become one.

    Raises:
        WrongPath: It is something else, or can't be read.
        PipelineError: It can't be written.
    """
    folder = here(checkpoint, None)
    if folder is None:
        return
    kind = kind_of(folder)
    is_own = kind is Kind.OTHER and (folder / "stream").is_dir()
    if kind not in (Kind.MISSING, Kind.EMPTY) and not is_own:
        raise wrong_kind(checkpoint, kind, "a stream's checkpoint", _OWN_FOLDER)
    _check_writable(folder, "the checkpoint")


def here(path: str, is_here: bool | None) -> Path | None:
    """Return the folder if it is on this machine, else None.

    If Spark runs on a cluster, a path without a scheme is in the cluster's file system.

    Raises:
        WrongPath: The path is empty.
    """
    check_given(path)
    remote = os.environ.get("SPARK_REMOTE", "local")
    on_cluster = "PYSPARK_GATEWAY_PORT" in os.environ or not remote.startswith("local")
    if not is_here and on_cluster and not path.startswith("file:"):
        return None
    return local_folder(path)


def _check_writable(folder: Path, what: str) -> None:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise PipelineError(
            f"{what} {str(folder)!r} can't be written: {str(there)!r} is a file; {_OWN_FOLDER}"
        )
    if not os.access(there, os.W_OK | os.X_OK, **_MODES):
        raise PipelineError(
            f"{what} {str(folder)!r} can't be written: {str(there)!r} is not writable for this "
            "user; give a writable folder"
        )
