"""Keeps the tables in a folder, and moves each day into place when it is written."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.journal.kinds import local_folder
from celery_sqs_heartbeat.pipeline.engine.sail.kept_frames import SailKept, write_parquet
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse, between

#: Of the folders beside the tables that hold what is being made. Readers of tables pass them by.
_MAKING = ".making-"
#: In there: the days that were replaced, by table, and those that have no rows any more.
_GONE, _EMPTIED = "gone", "emptied"


class SailWarehouse(Warehouse):
    """The tables below one folder, as Spark has them.

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
        """Replace days as `Warehouse.write` does.

        The rows are written beside the table. Only when all of them are there, each day's folder
        takes the place of the one before.

        Args:
            revise: Is given the rows that were written, and may return others for them.
        """
        folder = Path(self._folder(table))
        with self._faults_told(), self._making() as making:
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
        """Return the table's rows from the first day to the last; none if there is no table."""
        return between(self._below(Path(self._folder(table)), table), first, last)

    def _below(self, folder: Path, table: Table) -> DataFrame:
        if not any(folder.glob(f"{PARTITION}=*/*.parquet")):
            return self.nothing(table)
        return self._spark.read.schema(table.ddl).parquet(str(folder))

    def kept(self) -> SailKept:
        """Return what keeps frames in files beside the tables."""
        with self._faults_told():
            return SailKept(self._spark, self._making())

    def _making(self) -> TemporaryDirectory[str]:
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(prefix=_MAKING, dir=folder)

    @contextmanager
    def _faults_told(self) -> Iterator[None]:
        """Tell of a place that takes no tables by its name.

        Raises:
            PipelineError: In place of the system's error.
        """
        try:
            yield
        except OSError as error:
            raise PipelineError(
                f"the warehouse {self.path!r} can't be written: {error}; give a folder that can be"
            ) from None


def _days(table: Path, first: datetime.date | None, last: datetime.date | None) -> Iterator[Path]:
    """Yield the folders of the days from first to last."""
    for folder in table.glob(f"{PARTITION}=*"):
        day = day_of_file(f"/{folder.name}/")
        if day and (first is None or first <= day) and (last is None or day <= last):
            yield folder


def _replace(day: Path, new: Path | None, gone: Path) -> None:
    """Put a day's new folder, or none, where the old one was; that is moved away.

    Whatever is raised in between, the old one is put back.
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
        PipelineError: It is a URL, or Sail would take it for a pattern.
    """
    here = local_folder(path)
    if here is None:
        raise PipelineError(
            f"the engine sail works on folders of this machine, and the {what} is {path!r}: "
            "give a folder, or take the engine spark"
        )
    # Without `..`, which Sail takes out of a path without looking where it leads.
    folder = here.resolve()
    if found := sorted(set(str(folder)) & set("*?[]{}")):
        raise PipelineError(
            f"the engine sail takes {' '.join(found)} for a pattern, and the {what} is "
            f"{str(folder)!r}: give a folder without, or take the engine spark"
        )
    return folder


def sweep(warehouse: str, older_than: float) -> None:
    """Remove what runs that were killed have left beside the tables.

    A day that such a run had moved away and not yet replaced is put back.

    Args:
        older_than: In seconds since the epoch: what has changed since is left alone.
    """
    for making in Path(warehouse).glob(f"{_MAKING}*"):
        if making.stat().st_mtime >= older_than:
            continue
        for gone in making.glob(f"{_GONE}/*/{PARTITION}=*"):
            day = Path(warehouse, gone.parent.name, gone.name)
            if not day.exists():
                gone.rename(day)
        shutil.rmtree(making, ignore_errors=True)
