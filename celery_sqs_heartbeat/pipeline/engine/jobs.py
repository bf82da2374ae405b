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
| recommendations | L | durations, attempts and events of L-B to L |

B is the lookback, 4 days by default: the longest time between two receives of a message that the
tables see together. An attempt ends on the day of its receive or on the next day, because SQS keeps
no message invisible for more than 12 hours. Rows of days before those come from earlier runs. A run
over the day of their folder picks up late lines. The journal must then still contain two days
before it and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine.intake import Lines, write_lines
from celery_sqs_heartbeat.pipeline.engine.makers import MAKERS, NEEDS, Sources
from celery_sqs_heartbeat.pipeline.schema import Table
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse, between

#: Days before and after a day in which to look for other receives of a message.
LOOKBACK_DAYS = 4

#: Returns the days that a run writes, from its days and the lookback.
_WRITES: Mapping[Table, Callable[[Days, int], Days]] = {
    schema.DUPLICATES: lambda run, back: run.grown(1, back),
    schema.RECOVERIES: lambda run, back: run.grown(1 + back, 1),
    schema.GROUP_STOPS: lambda run, back: run.grown(1 + back, 1),
    schema.RECOMMENDATIONS: lambda run, back: Days.of(run.last),
}


def refresh(
    warehouse: Warehouse,
    lines: Lines,
    run: Days,
    *,
    lookback: int = LOOKBACK_DAYS,
    tables: Collection[Table] = tuple(MAKERS),
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Rewrite the tables for the journal's days of a run.

    Args:
        lines: Returns the journal's lines.
        tables: The tables to write, in addition to `events` and `rejects`. The tables that they
            are made from must be among them.
    """
    write_lines(warehouse, lines, run, progress)
    write_tables(warehouse, run, lookback=lookback, tables=tables, progress=progress)


def write_tables(
    warehouse: Warehouse,
    run: Days,
    *,
    lookback: int = LOOKBACK_DAYS,
    tables: Collection[Table] = tuple(MAKERS),
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the tables that are made from `events`, as the second step of `refresh`."""

    def write(table: Table, needed: Iterable[Future[None]]) -> None:
        for other in needed:
            other.result()
        progress(table.name.replace("_", " "))
        days = _WRITES[table](run, lookback) if table in _WRITES else run.grown(1, 1)
        with warehouse.kept() as kept:
            sources = Sources(warehouse, lookback, kept)
            rows = between(MAKERS[table](sources, days), days.first, days.last)
            warehouse.write(table, rows, days.first, days.last)

    # While one waits for its plan or its last task, another one uses the cores.
    with ThreadPoolExecutor(len(MAKERS)) as threads:
        writes: dict[Table, Future[None]] = {}
        for table in MAKERS:
            if table in tables:
                needed = [writes[other] for other in NEEDS.get(table, ()) if other in writes]
                writes[table] = threads.submit(write, table, needed)
    for done in writes.values():
        done.result()
