"""Stores the tables in a folder, and moves each day into place when it is written."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.journal.checking import local_folder
from celery_sqs_heartbeat.pipeline.engine.choice import PATTERN
from celery_sqs_heartbeat.pipeline.engine.sail.kept_frames import SailKept, write_parquet
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse, between

#: Prefix of folders beside the tables, for data being written. Readers of tables skip them.
_MAKING = ".making-"
#: Folders in there: replaced days, by table, and days that have no rows any more.
_GONE, _EMPTIED = "gone", "emptied"


class SailWarehouse(Warehouse):
    """The tables in one folder, in the same form as Spark's.

    Raises:
        PipelineError: The path is a URL.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, str(folder_of(path, "warehouse")))

    def write(
        self,
        table: Table,
        frame: DataFrame,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
        revise: Callable[[DataFrame], DataFrame | None] = lambda _: None,
    ) -> None:
        """Replace days like `Warehouse.write`.

        The rows are written beside the table. Only when all are written, each day's folder
        replaces the previous one.

        Args:
            revise: Receives the written rows, and may return others to replace them.
        """
        folder = Path(self._folder(table))
        with self._clear_errors(), self._making() as making:
            made, revised = Path(making, "made"), Path(making, "revised")
            gone, emptied = Path(making, _GONE, table.name), Path(making, _EMPTIED)
            write_parquet(frame, made, PARTITION)
            better = revise(self._below(made, table))
            if better is not None:
                write_parquet(better, revised, PARTITION)
                made = revised
            gone.mkdir(parents=True)
            emptied.mkdir()
            folder.mkdir(exist_ok=True)
            new = {day.name: day for day in _days(made, first, last)}
            is_all = first is not None and last is not None
            old = {day.name for day in _days(folder, first, last)} if is_all else set()
            for name in sorted(old | set(new)):
                away = gone if name in new else emptied
                _replace(folder / name, new.get(name), away / name)

    def read(
        self,
        table: Table,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
    ) -> DataFrame:
        """Return the table's rows from the first day to the last; none if the table is missing."""
        return between(self._below(Path(self._folder(table)), table), first, last)

    def _below(self, folder: Path, table: Table) -> DataFrame:
        if not any(folder.glob(f"{PARTITION}=*/*.parquet")):
            return self.nothing(table)
        return self._spark.read.schema(table.ddl).parquet(str(folder))

    def kept(self) -> SailKept:
        """Return the keeper of frames, which writes them to files beside the tables."""
        with self._clear_errors():
            return SailKept(self._spark, self._making())

    def _making(self) -> TemporaryDirectory[str]:
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(prefix=_MAKING, dir=folder)

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Raise a readable error for a place that can't be written.

        Raises:
            PipelineError: Instead of the system's error.
        """
        try:
            yield
        except OSError as error:
            raise PipelineError(
                f"the warehouse {self.path!r} can't be written: {error}; give a writable folder"
            ) from None


def _days(table: Path, first: datetime.date | None, last: datetime.date | None) -> Iterator[Path]:
    """Yield the folders of the days from first to last."""
    for folder in table.glob(f"{PARTITION}=*"):
        day = day_of_file(f"/{folder.name}/")
        if day and (first is None or first <= day) and (last is None or day <= last):
            yield folder


def _replace(day: Path, new: Path | None, gone: Path) -> None:
    """Move a day's old folder away, and put the new one, if any, in its place.

    If anything is raised in between, the old one is put back.
    """
    try:
        if day.exists():
            day.rename(gone)
        if new is not None:
            new.rename(day)
    except BaseException:
        if gone.exists() and not day.exists():
            gone.rename(day)
        raise


def folder_of(path: str, what: str) -> Path:
    """Return a path as a folder of this machine.

    Raises:
        PipelineError: It is a URL, or Sail would read it as a pattern.
    """
    here = local_folder(path)
    if here is None:
        raise PipelineError(
            f"the engine sail works on folders of this machine, and the {what} is {path!r}: "
            "give a folder, or use the engine spark"
        )
    # Without `..`, which Sail removes from a path without following links.
    folder = here.resolve()
    if found := sorted(set(str(folder)) & set(PATTERN)):
        raise PipelineError(
            f"the engine sail reads {' '.join(found)} as a pattern, and the {what} is "
            f"{str(folder)!r}: give a folder without it, or use the engine spark"
        )
    return folder


def sweep(warehouse: str, older_than: float) -> None:
    """Remove what killed runs have left beside the tables.

    If such a run had moved a day away and not yet replaced it, the day is put back.

    Args:
        older_than: Seconds since the epoch. Folders that have changed since are kept.
    """
    for making in Path(warehouse).glob(f"{_MAKING}*"):
        if making.stat().st_mtime >= older_than:
            continue
        for gone in making.glob(f"{_GONE}/*/{PARTITION}=*"):
            day = Path(warehouse, gone.parent.name, gone.name)
            if not day.exists():
                gone.rename(day)
        shutil.rmtree(making, ignore_errors=True)
