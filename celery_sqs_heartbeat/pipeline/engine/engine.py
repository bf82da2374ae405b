"""An engine: the three parts in which engines differ, and the job that uses them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.pipeline.engine.jobs import LOOKBACK_DAYS, write_tables
from celery_sqs_heartbeat.pipeline.engine.makers import MAKERS
from celery_sqs_heartbeat.pipeline.schema import DURATIONS, WORKERS, Table
from celery_sqs_heartbeat.pipeline.storage.holdings import refuse_unreadable
from celery_sqs_heartbeat.pipeline.storage.reach import is_out_of_reach, within_reach
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

#: Is called with the current step, in a few words.
Progress = Callable[[str], None]
#: Writes `events` and `rejects` of a journal's days into a warehouse, and returns the days.
TakeIn = Callable[
    [SparkSession, str, Warehouse, datetime.date | None, datetime.date | None, Progress],
    Days | None,
]


class Start(Protocol):
    """Starts a session."""

    def __call__(self, name: str, *, source: str | None = None) -> SparkSession:
        """Return a session for a program of that name, and for the data at the source."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of an engine.

    Attributes:
        start: Starts a session.
        warehouse: Opens the tables at a path.
        ingest: Writes `events` and `rejects`.
        temporary: Provides a warehouse for the tables of one report.
    """

    start: Start
    warehouse: Callable[[SparkSession, str], Warehouse]
    ingest: TakeIn
    temporary: Callable[[SparkSession, str], AbstractContextManager[Warehouse]]

    def has_tables(self, spark: SparkSession, source: str) -> bool:
        """Return whether a path has tables. It may also be a journal."""
        if is_out_of_reach(spark, source):
            return False
        warehouse = self.warehouse(spark, source)
        return any(warehouse.has_rows(table) for table in (WORKERS, DURATIONS))

    def read_journal(
        self,
        spark: SparkSession,
        journal: str,
        warehouse: str | Warehouse,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
        *,
        progress: Progress = lambda _: None,
    ) -> Days | None:
        """Write `events` and `rejects`, from which all other tables are made.

        Arguments, result and errors are the same as for `build`.
        """
        # Do this before a journal is copied, because the tables may be impossible to store.
        made = self._opened(spark, warehouse)
        with within_reach(spark, journal, first, last, progress) as source:
            run = self.ingest(spark, source, made, first, last, progress)
        if run is not None:
            refuse_unreadable(made, run, journal)
        return run

    def build(
        self,
        spark: SparkSession,
        journal: str,
        warehouse: str | Warehouse,
        first: datetime.date | None = None,
        last: datetime.date | None = None,
        *,
        lookback: int = LOOKBACK_DAYS,
        tables: Collection[Table] = tuple(MAKERS),
        progress: Progress = lambda _: None,
    ) -> Days | None:
        """Build the tables from the journal's days between the first and the last.

        Args:
            spark: A session of this engine; its time zone is UTC.
            journal: Folder or URL of the journal.
            warehouse: Folder or URL of the tables, or the tables.
            first: The first day; None for the journal's first.
            last: The last day; None for the journal's last.
            lookback: Days, as the module `jobs` explains.
            tables: As for `jobs.refresh`.
            progress: Is called with each table's name before it is made.

        Returns:
            The journal's days that were read; None if it has none of these.

        Raises:
            PipelineError: The journal is missing, nothing of it can be read, or the engine can't
                use these paths.
            FetchError: The journal is on S3, and can't be copied.
        """
        made = self._opened(spark, warehouse)
        run = self.read_journal(spark, journal, made, first, last, progress=progress)
        if run is not None:
            write_tables(made, run, lookback=lookback, tables=tables, progress=progress)
        return run

    def _opened(self, spark: SparkSession, warehouse: str | Warehouse) -> Warehouse:
        return self.warehouse(spark, warehouse) if isinstance(warehouse, str) else warehouse
