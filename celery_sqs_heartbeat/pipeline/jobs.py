"""Builds the tables from the journal: reads, transforms, writes whole days.

Repeating a run changes nothing. Several runs, in the order of the days, give the same result as one
run over all days: each run rewrites every day that its part of the journal has events of.

| table | a run over the journal's days F to L writes | made from |
|---|---|---|
| rejects | F to L | the journal's F to L |
| events | F-1 to L+1 | the journal's F-2 to L+2: a line may be in a folder next to its day's |
| workers | F-1 to L+1 | events of the same days |
| attempts | F-1 to L+1 | events of F-2 to L+2 |
| duplicates | F-1 to L+B | attempts and rejects of F-1-B to L+B, events of a day more |
| recoveries | F-1-B to L+1 | attempts of F-2-B to L+1+B |
| group_stops | F-1-B to L+1 | attempts of F-2-2B to L+1+B |
| durations | F-1 to L+1 | attempts of the same days |
| in_flight | F-1 to L+1 | attempts of F-2 to L+1 |
| calls | F-1 to L+1 | events of the same days |
| recommendations | L | durations, attempts and calls of L-B to L |

B is the lookback, 4 days by default: the longest time between two receives of a message that the
tables see together. An attempt ends on the day of its receive or on the next day, because SQS keeps
no message invisible for more than 12 hours. Rows of days before those come from earlier runs. A run
over the day of their folder picks up late lines. The journal must then still contain two days
before it and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Days, Span
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.advice import recommendations_of
from celery_sqs_heartbeat.pipeline.lines import (
    count_segments,
    journal_days,
    read_lines,
    within_reach,
)
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.spark import between, is_out_of_reach, new_session
from celery_sqs_heartbeat.pipeline.survey import Survey, survey
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of, recoveries_of
from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of, in_flight_of
from celery_sqs_heartbeat.pipeline.tables.events import (
    calls_of,
    events_of,
    rejects_of,
    with_reported,
    workers_of,
)
from celery_sqs_heartbeat.pipeline.tables.group_stops import group_stops_of
from celery_sqs_heartbeat.pipeline.warehouse import MemoryWarehouse, Warehouse

#: Days before and after a day in which to look for other receives of a message.
LOOKBACK_DAYS = 4
#: How often the journal is read. A worker closes a segment every five minutes, so another one is
#: hardly closed while the segments of the same few workers are read again.
READS = 3
_EVERYTHING = Span()

#: Is called with the current step, in a few words.
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Sources:
    """The tables from which a table is made, with some days before and after those of the run."""

    warehouse: Warehouse
    days: Days

    def read(self, table: Table, before: int = 0, after: int = 0) -> DataFrame:
        """Return a table's rows of the days and of days around them."""
        wider = self.days.grown(before, after)
        return self.warehouse.read(table, wider.first, wider.last)

    def workers(self, before: int = 0, after: int = 0) -> DataFrame:
        """Return the workers of these days, with the facts of their starts."""
        wider = self.days.grown(before, after)
        until_then = self.warehouse.read(schema.WORKERS, last=wider.last)
        return with_reported(between(until_then, first=wider.first), until_then)


def _recommendations(of: _Sources, back: int) -> DataFrame:
    rows = recommendations_of(
        of.read(schema.DURATIONS, back),
        of.read(schema.ATTEMPTS, back),
        of.read(schema.CALLS, back),
        of.workers(back),
    )
    # They belong to the run's last day, even if that has no attempts.
    return rows.withColumn(PARTITION, F.lit(of.days.last))


@dataclass(frozen=True, slots=True)
class Step:
    """How a table is made.

    Attributes:
        make: Makes it from its sources and the lookback.
        needs: The tables that it is made from, in addition to `events`.
        writes: Returns the days that a run writes, from its days and the lookback.
    """

    make: Callable[[_Sources, int], DataFrame]
    needs: tuple[Table, ...] = (schema.ATTEMPTS,)
    writes: Callable[[Days, int], Days] = lambda run, _: run.grown(1, 1)


#: In an order in which each table comes after those that it needs.
STEPS: Mapping[Table, Step] = {
    schema.WORKERS: Step(lambda of, _: workers_of(of.read(schema.EVENTS)), ()),
    schema.ATTEMPTS: Step(
        lambda of, _: attempts_of(of.read(schema.EVENTS, 1, 1), of.workers(1, 1)),
        (schema.WORKERS,),
    ),
    schema.DUPLICATES: Step(
        lambda of, back: duplicates_of(
            of.read(schema.ATTEMPTS, back),
            of.read(schema.EVENTS, back, 1),
            of.workers(back, 1),
            of.read(schema.REJECTS, back),
        ),
        writes=lambda run, back: run.grown(1, back),
    ),
    schema.RECOVERIES: Step(
        lambda of, back: recoveries_of(of.read(schema.ATTEMPTS, 1, back), of.workers(1, back)),
        writes=lambda run, back: run.grown(1 + back, 1),
    ),
    # It reads so many days before, because a message's first stop counts.
    schema.GROUP_STOPS: Step(
        lambda of, back: group_stops_of(
            of.read(schema.ATTEMPTS, 1 + back, back), of.workers(1 + back, back)
        ),
        writes=lambda run, back: run.grown(1 + back, 1),
    ),
    schema.DURATIONS: Step(lambda of, _: durations_of(of.read(schema.ATTEMPTS))),
    schema.IN_FLIGHT: Step(
        lambda of, _: in_flight_of(of.read(schema.ATTEMPTS, 1), of.workers(1)),
    ),
    schema.CALLS: Step(
        lambda of, _: calls_of(of.read(schema.EVENTS), of.workers()), (schema.WORKERS,)
    ),
    schema.RECOMMENDATIONS: Step(
        _recommendations,
        (schema.DURATIONS, schema.CALLS),
        lambda run, _: Days.of(run.last),
    ),
}


def build(
    spark: SparkSession,
    journal: str,
    warehouse: Warehouse,
    span: Span = _EVERYTHING,
    *,
    lookback: int = LOOKBACK_DAYS,
    tables: Collection[Table] = tuple(STEPS),
    progress: Progress = lambda _: None,
) -> Days | None:
    """Build the tables from the journal's days.

    Args:
        spark: A session whose time zone is UTC.
        journal: Folder or URL of the journal.
        span: The requested days.
        lookback: Days, as described above.
        tables: The tables to write, in addition to `events` and `rejects`. The tables that they
            are made from must be among them, or exist.
        progress: Is called with each step, in a few words.

    Returns:
        The journal's days that were read; None if it has none of these.

    Raises:
        PipelineError: The journal is missing, or nothing of it can be read.
        FetchError: The journal is on S3, and can't be copied.
    """
    with within_reach(spark, journal, span, progress) as source:
        progress("looking for the journal's days")
        run = journal_days(spark, source, span.first, span.last)
        if run is not None:
            write_lines(spark, source, warehouse, run, progress)
    if run is not None:
        warehouse.refuse_unreadable(run, journal)
        write_tables(warehouse, run, lookback=lookback, tables=tables, progress=progress)
    return run


@contextmanager
def opened(
    spark: SparkSession,
    source: str,
    span: Span = _EVERYTHING,
    *,
    is_journal: bool | None,
    tables: Collection[Table] = tuple(STEPS),
    progress: Progress = lambda _: None,
) -> Iterator[tuple[Warehouse, int | None]]:
    """Provide the tables of a warehouse, or temporary ones of a journal.

    It also provides the number of the journal's segments of these days; None for a warehouse.

    Args:
        is_journal: None if the source is not on this machine. Then it is a warehouse if it has
            tables.
        tables: As for `build`.

    Raises:
        PipelineError: The source is neither, or nothing of it can be read.
        FetchError: The source is on S3, and can't be copied.
    """
    if is_journal is None:
        # A journal on S3 is copied. If Spark could not reach it, it could reach no tables either.
        is_journal = is_out_of_reach(spark, source) or not any(
            Warehouse(spark, source).has_rows(table) for table in (schema.WORKERS, schema.DURATIONS)
        )
    if not is_journal:
        yield Warehouse(spark, source), None
        return
    made = MemoryWarehouse(spark)
    with within_reach(spark, source, span, progress) as journal:
        is_any = build(spark, journal, made, span, tables=tables, progress=progress)
        yield made, count_segments(spark, journal, span) if is_any else 0


def measure(source: str, *, is_journal: bool | None) -> tuple[Survey, str]:
    """Measure the fleet for `tune`. It also returns what could not be read, in words.

    Args:
        source: A journal or a warehouse.
        is_journal: As for `opened`, whose errors this raises, too.
    """
    spark = new_session("sqs-heartbeat tune")
    made = (schema.WORKERS, schema.ATTEMPTS, schema.DURATIONS, schema.CALLS)
    with opened(spark, source, is_journal=is_journal, tables=made) as (tables, segments):
        found = survey(*(tables.read(each) for each in schema.SURVEYED))
        return found, "" if segments is None else tables.unread_in(_EVERYTHING, source)


def write_lines(
    spark: SparkSession,
    journal: str,
    warehouse: Warehouse,
    run: Days,
    progress: Progress = lambda _: None,
) -> None:
    """Write `events` and `rejects`, from which all other tables are made.

    If a worker closes a segment meanwhile, all are listed and read again, at most `READS` times.
    """
    around = run.grown(1, 1)
    for reads_left in reversed(range(READS)):
        try:
            progress("events")
            events = events_of(read_lines(spark, journal, around.first, around.last))
            warehouse.write(schema.EVENTS, events, around.first, around.last)
            progress("rejects")
            rejects = rejects_of(read_lines(spark, journal, run.first, run.last))
            warehouse.write(schema.REJECTS, rejects, run.first, run.last)
        except Exception as error:
            # Spark has no class for this error: it comes from the JVM, or from a remote one.
            if not reads_left or "FAILED_READ_FILE.FILE_NOT_EXIST" not in str(error):
                raise
            progress("events again, because a worker closed a segment meanwhile")
        else:
            return


def write_tables(
    warehouse: Warehouse,
    run: Days,
    *,
    lookback: int = LOOKBACK_DAYS,
    tables: Collection[Table] = tuple(STEPS),
    progress: Progress = lambda _: None,
) -> None:
    """Write the tables that are made from `events`, as the second step of `build`."""

    def write(table: Table, needed: Iterable[Future[None]]) -> None:
        for other in needed:
            other.result()
        progress(table.name.replace("_", " "))
        days = STEPS[table].writes(run, lookback)
        rows = STEPS[table].make(_Sources(warehouse, days), lookback)
        warehouse.write(table, between(rows, days.first, days.last), days.first, days.last)

    # While one waits for its plan or its last task, another one uses the cores.
    with ThreadPoolExecutor(len(STEPS)) as threads:
        writes: dict[Table, Future[None]] = {}
        for table in STEPS:
            if table in tables:
                needs = [writes[other] for other in STEPS[table].needs if other in writes]
                writes[table] = threads.submit(write, table, needs)
    for done in writes.values():
        done.result()
