"""The tables' contract: columns with their types and units, without Spark.

Times are whole microseconds since 1970 in UTC, spans whole microseconds, unless a column says
otherwise. Every table is partitioned by `dt`, a UTC day, and written a whole day at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.journal.fields import FIELDS

#: The day a row belongs to; each table says of what.
PARTITION = "dt"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type as in Spark's DDL, and what it means, with the unit."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the warehouse.

    Attributes:
        day_of: What the partition `dt` is the UTC day of.
    """

    name: str
    meaning: str
    day_of: str
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


def _table(name: str, meaning: str, day_of: str, columns: str) -> Table:
    """Return a table of columns given a line each: `name type: meaning`."""
    parsed = []
    for line in columns.strip().splitlines():
        head, _, text = line.strip().partition(": ")
        column, _, kind = head.partition(" ")
        parsed.append(Column(column, kind, text))
    return Table(name, meaning, day_of, tuple(parsed))


EVENTS = Table(
    "events",
    "the journal's lines, each once, with the worker's clock corrected",
    "when it happened",
    (
        *(Column(field.name, field.type, field.meaning) for field in FIELDS),
        Column("skew_us", "bigint", "that the worker's clock was ahead of SQS's, taken off `ts`"),
    ),
)

REJECTS = _table(
    "rejects",
    "lines of the journal that could not be read",
    "the folder that the file is in",
    """
    file string: path of the segment below the journal's folder
    reason string: `corrupt line`, `torn segment`, `unknown version` or `unknown event`
    lines bigint: how many; 1 for a torn segment, of which nobody knows
    """,
)

WORKERS = _table(
    "workers",
    "each worker on each day that it wrote lines; what it told at its start is on that day",
    "the lines",
    """
    wid string: the worker
    host string: host name
    pid bigint: process id
    node string: Celery's node name
    pool string: the pool's kind
    concurrency int: tasks at once, at the most
    settings map<string,string>: settings by name
    versions map<string,string>: versions by package
    first_seen bigint: its first line of the day
    last_seen bigint: its last line of the day
    stopped bigint: its worker-stopped line; null while it runs, or when it was killed
    lines bigint: lines that were read
    first_seq bigint: number of the first of them
    last_seq bigint: number of the last: were there no gaps, it would tell how many they are
    late_count bigint: how often its keeper was late
    late_max_us bigint: by how much at the most
    """,
)

#: How an attempt ended. Lapsed: left to become visible by itself. Continued: the same worker
#: received the message again, and went on under that delivery. Abandoned: no event ends it.
ENDS = (
    "deleted",
    "released",
    "lapsed",
    "lost",
    "capped",
    "continued",
    "abandoned",
    "running",
)

ATTEMPTS = _table(
    "attempts",
    "each receive of a message by a worker with a journal",
    "the receive",
    """
    queue string: name of the queue
    msg string: SQS message id
    dlv string: the delivery
    wid string: the worker
    task string: name of the task
    task_id string: Celery's task id
    grp string: the message's group; null without one, or from a journal older than that field
    sn string: its sequence number in a FIFO queue, in digits; null as for `grp`
    rc int: SQS's count of the message's receives
    received_as string: `new`, `redelivered` or `finished`, as in the journal
    sent bigint: when the message was sent, by SQS's clock
    first bigint: when it was first received, by SQS's clock
    received bigint: when it arrived
    started bigint: when its task started; null if it did not
    finished bigint: when its delete or release was asked for: the end of its task
    ended bigint: its last event that ends it, confirmed by SQS
    last_event bigint: the last event of any kind
    ended_as string: one of ENDS
    cause string: why it was given back or lost, as in the journal
    max_rc int: maxReceiveCount of the queue at its receive; null where it has no redrive policy
    vt int: visibility timeout that it was received with, seconds
    last_vt int: visibility timeout last asked for, seconds; of a released one its delay
    last_extended bigint: the last confirmed extension, or null
    extensions int: confirmed extensions
    failures int: tries of an extension that failed
    expired bigint: when the lease's clock ran out unconfirmed, or null
    lost bigint: when SQS said that it is not ours, or null
    capped bigint: when it reached the longest that it may be kept, or null
    min_slack_us bigint: least that was left of the lease at a confirmed extension
    max_latency_us bigint: slowest call for it
    last_error string: SQS's last answer that was not `done`
    wait_us bigint: from receive to start
    run_us bigint: from start to finish; null where either is
    """,
)

DUPLICATES = _table(
    "duplicates",
    "executions of one message that began although another one had not failed: see Duplicates",
    "the start of the second",
    """
    queue string: name of the queue
    msg string: SQS message id
    task string: name of the task
    task_id string: Celery's task id
    first_wid string: worker of the first execution; null where no journal tells of it
    first_rc int: its receive count
    first_started bigint: its start
    first_finished bigint: its end; null where it has none
    first_ended_as string: as in `attempts`
    second_wid string: worker of the second execution
    second_rc int: its receive count
    second_started bigint: its start
    second_finished bigint: its end; null where it has none
    second_ended_as string: as in `attempts`
    overlap_us bigint: for how long both ran
    both_succeeded boolean: whether both came to their end without failing
    cause string: the root cause, see Duplicates
    evidence string: what in the journal says so
    """,
)

RECOVERIES = _table(
    "recoveries",
    "each attempt that ended without its message done: how long until the next receive",
    "the attempt's end",
    """
    queue string: name of the queue
    msg string: SQS message id
    task string: name of the task
    wid string: worker of the attempt
    rc int: its receive count
    ended_as string: as in `attempts`
    cause string: as in `attempts`
    failed bigint: when it ended; of an abandoned one, its last event
    next_received bigint: the next receive; null where there is none yet, or it is in no journal
    next_wid string: its worker
    recovery_us bigint: between the two, or to the data's end if censored; null if in no journal
    is_censored boolean: whether there is no next receive yet, though there will be one
    is_dead_letter boolean: whether there will be none: it had been received max_rc times
    promised_us bigint: the release's delay, or what the lease had left; null as for `recovery_us`
    excess_us bigint: by how much it took longer; negative when it was sooner
    """,
)

#: Ratio of two neighbouring bins of a histogram: its quantiles are within 1 %.
RATIO = 1.02

#: What became of a message that stopped its group. Dead letter: it was received as often as its
#: queue allows, and not deleted. Unknown: the journals show neither, or not yet.
OUTCOMES = ("succeeded", "dead letter", "unknown")

GROUP_STOPS = _table(
    "group_stops",
    "each message of a FIFO queue that stopped its group: it came to nothing, and what is behind "
    "it in the group waits",
    "the stop",
    """
    queue string: name of the queue
    grp string: the message's group
    msg string: SQS message id
    task string: name of the task
    task_id string: Celery's task id
    stopped_at bigint: when the first of its attempts failed; of an abandoned one, its last event
    resumed_at bigint: when its delete was confirmed, or else another of its group came; or null
    seconds double: between the two, in seconds; to the data's end where it still stands still
    attempts int: how often the message was received, by SQS's count
    waiting bigint: messages behind it that a worker gave back meanwhile, as their group was stopped
    outcome string: one of OUTCOMES
    """,
)

DURATIONS = _table(
    "durations",
    "run times and waits as additive log-histograms: bin b holds spans of RATIO**b to RATIO**(b+1)",
    "the receive",
    """
    queue string: name of the queue
    task string: name of the task
    measure string: `run`, `wait`, or `held`: from the receive to the end of the task
    vt int: visibility timeout that the messages were received with, seconds
    bin int: floor(log(span in microseconds) / log(RATIO)); 0 for spans below 1 microsecond
    spans bigint: that ended
    censored bigint: that had lasted so long, and still went on, at the end of the data
    sum_us bigint: sum of both
    """,
)

IN_FLIGHT = _table(
    "in_flight",
    "messages received and not yet ended, by queue and minute",
    "the minute",
    """
    queue string: name of the queue
    minute bigint: its beginning
    peak bigint: the most at once
    mean double: over the minute
    quota_share double: peak over SQS's quota of 120,000
    slots bigint: tasks that the workers which hold its messages that day can run at any one time
    """,
)

CALLS = _table(
    "calls",
    "calls to SQS and their price",
    "when they were answered",
    """
    queue string: name of the queue
    version string: of celery-sqs-heartbeat; null where no worker-started line tells
    kind string: `extend`, `release` or `delete`, and `receive` for messages received
    calls double: API calls; of `receive` at least that many: empty receives are not journalled
    entries bigint: messages in them
    failed bigint: entries that were not done
    cost_usd double: of the calls
    saved_usd double: what a call for each entry would have cost more; 0 of `receive`
    """,
)

RECOMMENDATIONS = _table(
    "recommendations",
    "settings for each queue, and for tasks that should have their own, with the trade-off's curve",
    "the last day that was read",
    """
    queue string: name of the queue
    task string: name of the task; null for the whole queue
    rank int: 0 for what is recommended, 1 upwards along the curve, -1 for what runs
    visibility_timeout int: seconds
    threshold double: seconds
    interval double: seconds
    max_lease double: seconds
    calls_per_1000 double: extension calls for 1,000 attempts
    recovery_s double: expected seconds from a crash until the message is visible again
    risk double: chance that a lease is lost, for one attempt
    least_risk double: the smallest such chance that so many attempts can show
    objective double: what is minimized, in dollars for 1,000 attempts
    messages bigint: attempts that the figures are from
    confidence string: `high`, `medium` or `low`
    reason string: for people
    """,
)

TABLES = {
    table.name: table
    for table in (
        EVENTS,
        REJECTS,
        WORKERS,
        ATTEMPTS,
        DUPLICATES,
        RECOVERIES,
        GROUP_STOPS,
        DURATIONS,
        IN_FLIGHT,
        CALLS,
        RECOMMENDATIONS,
    )
}

#: The tables that `report` and `tune` read of a warehouse.
REPORTED = tuple(table for table in TABLES.values() if table is not EVENTS)
SURVEYED = (DURATIONS, ATTEMPTS, EVENTS, WORKERS)
