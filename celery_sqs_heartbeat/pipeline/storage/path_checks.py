"""Checks the paths that a command is given, before an engine starts or anything is read.

Folders of this machine alone: what is behind a URL, or on a cluster, the engine finds out.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.journal import checking
from celery_sqs_heartbeat.journal.checking import (
    GIVE_JOURNAL,
    check_given,
    check_segments,
    wrong_kind,
)
from celery_sqs_heartbeat.journal.kinds import Kind, kind_of, local_folder
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import TABLES, Table
from celery_sqs_heartbeat.pipeline.storage.table_files import check_columns

#: Ways out for what is neither a journal nor a warehouse.
_NEITHER = {Kind.TABLE: "give the folder above", Kind.DAY: "give the folder above"}
_OF_PIPELINE = f"{GIVE_JOURNAL}, or the --warehouse of the pipeline's run"
_OWN_FOLDER = "give a folder of its own, which may be new"
_MODES = {"effective_ids": os.access in os.supports_effective_ids}


def check_journal(
    journal: str, span: Span, *, is_here: bool | None = None, closed: bool = False
) -> None:
    """Let a journal pass.

    Args:
        span: The days that are wanted.
        is_here: Whether it is read on this machine; None where that is up to Spark.
        closed: Whether open segments do not count.

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
    """Let a journal pass, or a warehouse; return whether it is a journal.

    Arguments and errors are those of `check_journal`.

    Args:
        tables: Those that are read of a warehouse.

    Returns:
        None for what is not on this machine.
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
    """Let a warehouse pass that can be written, or a folder that can become one.

    Args:
        span: The days of which its tables are read, too.

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
    """Let the folder of a stream's checkpoint pass, or one that can become that.

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
    """Return the folder, if it is one of this machine.

    Where Spark runs on a cluster, a path without a scheme is one of the cluster's file system.

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
            "user; give a folder that is"
        )
