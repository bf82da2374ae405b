"""The tables' contract: columns with their types, without Spark.

`docs/pipeline.md` has each column's meaning. Times are whole microseconds since 1970 in UTC, and
durations are whole microseconds, unless a column's name says otherwise. Every table is partitioned
by `dt`, a UTC day, and written in whole days.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from celery_sqs_heartbeat.journal.fields import FIELDS

#: The column with the day of a row.
PARTITION = "dt"
#: Ratio of two neighbouring bins of a histogram. Its quantiles are within 1 %.
RATIO = 1.02
#: A comma between two columns, and not between the types of a map.
_COMMA = re.compile(r",\s+")


@dataclass(frozen=True, slots=True)
class Column:
    """One column, and its type in Spark's DDL."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the warehouse."""

    name: str
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """The schema as Spark's DDL, `dt` last."""
        columns = [f"`{column.name}` {column.type}" for column in self.columns]
        return ", ".join([*columns, f"{PARTITION} date"])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, `dt` last."""
        return (*(column.name for column in self.columns), PARTITION)


#: All tables by their names, in the order of this file.
TABLES: dict[str, Table] = {}


def _table(name: str, columns: str) -> Table:
    """Return a table of columns, each a name and a type."""
    parsed = (Column(*column.split()) for column in _COMMA.split(columns.strip()))
    TABLES[name] = Table(name, tuple(parsed))
    return TABLES[name]


#: The journal's lines, each once, with the worker's clock corrected by `skew_us`.
EVENTS = _table(
    "events", ", ".join([*(f"{field.name} {field.type}" for field in FIELDS), "skew_us bigint"])
)

#: Lines that could not be read, by segment and reason.
REJECTS = _table(
    "rejects",
    """
    file string, reason string, lines bigint
    """,
)

#: A row for each worker and day that it wrote lines.
WORKERS = _table(
    "workers",
    """
    wid string, host string, pid bigint, node string, pool string, concurrency int,
    settings map<string,string>, versions map<string,string>, first_seen bigint, last_seen bigint,
    stopped bigint, lines bigint, first_seq bigint, last_seq bigint, late_count bigint,
    late_max_us bigint
    """,
)

#: Each receive of a message by a worker with a journal.
ATTEMPTS = _table(
    "attempts",
    """
    queue string, msg string, dlv string, wid string, task string, task_id string, grp string,
    sn string, rc int, received_as string, sent bigint, first bigint, received bigint,
    started bigint, finished bigint, ended bigint, last_event bigint, ended_as string,
    cause string, max_rc int, vt int, last_vt int, last_extended bigint, extensions int,
    failures int, expired bigint, lost bigint, capped bigint, min_slack_us bigint,
    max_latency_us bigint, last_error string, wait_us bigint, run_us bigint
    """,
)

#: Executions of a message that began although the one before had not failed.
DUPLICATES = _table(
    "duplicates",
    """
    queue string, msg string, task string, task_id string, first_wid string, first_rc int,
    first_started bigint, first_finished bigint, first_ended_as string, second_wid string,
    second_rc int, second_started bigint, second_finished bigint, second_ended_as string,
    overlap_us bigint, both_succeeded boolean, cause string, evidence string
    """,
)

#: Each attempt that ended before its message was done, and the time until the next receive.
RECOVERIES = _table(
    "recoveries",
    """
    queue string, msg string, task string, wid string, rc int, ended_as string, cause string,
    failed bigint, next_received bigint, next_wid string, recovery_us bigint, is_censored boolean,
    is_dead_letter boolean, promised_us bigint, excess_us bigint
    """,
)

#: Each message of a FIFO queue that failed and so stopped its group.
GROUP_STOPS = _table(
    "group_stops",
    """
    queue string, grp string, msg string, task string, task_id string, stopped_at bigint,
    resumed_at bigint, seconds double, attempts int, waiting bigint, outcome string
    """,
)

#: Run times and waits as additive log-histograms.
DURATIONS = _table(
    "durations",
    """
    queue string, task string, measure string, vt int, bin int, spans bigint, censored bigint,
    sum_us bigint
    """,
)

#: Messages received and not yet ended, by queue and minute.
IN_FLIGHT = _table(
    "in_flight",
    """
    queue string, minute bigint, peak bigint, mean double, quota_share double, slots bigint
    """,
)

#: Calls to SQS and their price.
CALLS = _table(
    "calls",
    """
    queue string, version string, kind string, calls double, entries bigint, failed bigint,
    cost_usd double, saved_usd double
    """,
)

#: Settings for each queue, and for tasks that need their own, with alternatives.
RECOMMENDATIONS = _table(
    "recommendations",
    """
    queue string, task string, rank int, visibility_timeout int, threshold double,
    interval double, max_lease double, calls_per_1000 double, recovery_s double, messages bigint,
    confidence string, reason string
    """,
)

#: The tables that `report` and `tune` read from a warehouse.
REPORTED = tuple(table for table in TABLES.values() if table is not EVENTS)
SURVEYED = (DURATIONS, ATTEMPTS, CALLS, WORKERS)
