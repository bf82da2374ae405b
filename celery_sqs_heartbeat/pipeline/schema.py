"""The tables' contract: columns with their types and units, without Spark.

Times are whole microseconds since 1970 in UTC, and durations are whole microseconds, unless a
column says otherwise. Every table is partitioned by `dt`, a UTC day, and written in whole days.
"""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.journal.fields import FIELDS

#: The column with the day of a row; `Table.day_of` says which day that is.
PARTITION = "dt"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type in Spark's DDL, and its meaning with the unit."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the warehouse.

    Attributes:
        day_of: The event whose UTC day is the partition `dt`.
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


#: All tables by their names, in the order of this file.
TABLES: dict[str, Table] = {}


def _table(name: str, meaning: str, day_of: str, columns: str) -> Table:
    """Return a table of columns, from lines `name type: meaning`."""
    parsed = []
    for line in columns.strip().splitlines():
        head, _, text = line.strip().partition(": ")
        column, _, kind = head.partition(" ")
        parsed.append(Column(column, kind, text))
    TABLES[name] = Table(name, meaning, day_of, tuple(parsed))
    return TABLES[name]


_FIELDS = "\n".join(f"{field.name} {field.type}: {field.meaning}" for field in FIELDS)

EVENTS = _table(
    "events",
    "the journal's lines, each once, with the worker's clock corrected",
    "the event",
    f"""
    {_FIELDS}
    skew_us bigint: how far the worker's clock was ahead of SQS's; already subtracted from `ts`
    """,
)

REJECTS = _table(
    "rejects",
    "lines of the journal that could not be read",
    "the folder that the file is in",
    """
    file string: path of the segment within the journal's folder
    reason string: `corrupt line`, `torn segment`, `unknown version` or `unknown event`
    lines bigint: number of lines; 1 for a torn segment, whose number is unknown
    """,
)

WORKERS = _table(
    "workers",
    "each worker on each day that it wrote lines; the facts of its start are on that day only",
    "the lines",
    """
    wid string: the worker's id
    host string: host name
    pid bigint: process id
    node string: Celery's node name
    pool string: the pool's kind
    concurrency int: maximum number of tasks at once
    settings map<string,string>: settings by name
    versions map<string,string>: versions by package
    first_seen bigint: time of its first line of the day
    last_seen bigint: time of its last line of the day
    stopped bigint: time of its `worker-stopped` line; null while it runs, or if it was killed
    lines bigint: number of lines that could be read
    first_seq bigint: `seq` of the first of them
    last_seq bigint: `seq` of the last; without gaps, `last_seq - first_seq + 1` equals `lines`
    late_count bigint: how often its keeper was late
    late_max_us bigint: the longest such delay
    """,
)

#: How an attempt ended. Lapsed: the message becomes visible when its timeout ends. Continued: the
#: same worker received the message again, and went on under that delivery. Abandoned: no event
#: ends it.
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
    f"""
    queue string: name of the queue
    msg string: SQS message id
    dlv string: the delivery
    wid string: the worker's id
    task string: name of the task
    task_id string: Celery's task id
    grp string: the message's group; null without one, or if the journal is older than that field
    sn string: its sequence number in a FIFO queue, in digits; null as for `grp`
    rc int: SQS's count of the message's receives
    received_as string: `new`, `redelivered` or `finished`, as in the journal
    sent bigint: when the message was sent, by SQS's clock
    first bigint: when the message was first received, by SQS's clock
    received bigint: when the worker received it
    started bigint: when its task started; null if it did not
    finished bigint: when its delete or release was requested, which is the end of its task
    ended bigint: its last event that ends it, confirmed by SQS
    last_event bigint: its last event of any kind
    ended_as string: {", ".join(f"`{end}`" for end in ENDS)}
    cause string: why it was released or lost, as in the journal
    max_rc int: `maxReceiveCount` of the queue at its receive; null without a redrive policy
    vt int: visibility timeout at its receive, in seconds
    last_vt int: visibility timeout requested last, in seconds; for a release, its delay
    last_extended bigint: the last confirmed extension, or null
    extensions int: number of confirmed extensions
    failures int: number of failed tries to extend
    expired bigint: when the lease expired unconfirmed, or null
    lost bigint: when SQS reported that the lease is not ours, or null
    capped bigint: when the lease reached its longest time, or null
    min_slack_us bigint: least time that was left of the lease at a confirmed extension
    max_latency_us bigint: duration of the slowest call for it
    last_error string: SQS's last answer that was not `done`
    wait_us bigint: from receive to start
    run_us bigint: from start to finish; null if either is null
    """,
)

DUPLICATES = _table(
    "duplicates",
    "executions of a message that began although the one before had not failed: see Duplicates",
    "the start of the second execution",
    """
    queue string: name of the queue
    msg string: SQS message id
    task string: name of the task
    task_id string: Celery's task id
    first_wid string: worker of the first execution
    first_rc int: its receive count
    first_started bigint: its start
    first_finished bigint: its end, or null
    first_ended_as string: as in `attempts`
    second_wid string: worker of the second execution
    second_rc int: its receive count
    second_started bigint: its start
    second_finished bigint: its end, or null
    second_ended_as string: as in `attempts`
    overlap_us bigint: how long both ran at the same time
    both_succeeded boolean: whether both ended without failing
    cause string: the root cause, see Duplicates
    evidence string: what in the journal shows the cause
    """,
)

RECOVERIES = _table(
    "recoveries",
    "each attempt that ended before its message was done, and the time until the next receive",
    "the attempt's end",
    """
    queue string: name of the queue
    msg string: SQS message id
    task string: name of the task
    wid string: worker of the attempt
    rc int: its receive count
    ended_as string: as in `attempts`
    cause string: as in `attempts`
    failed bigint: when the attempt ended; for an abandoned one, its last event
    next_received bigint: the next receive; null if there is none yet, or if no journal contains it
    next_wid string: worker of the next receive
    recovery_us bigint: between the two; until the data's end if censored; null if in no journal
    is_censored boolean: whether a next receive is still expected
    is_dead_letter boolean: whether none is expected: it was received `max_rc` times
    promised_us bigint: the release's delay, or what the lease had left; null as for `recovery_us`
    excess_us bigint: how much longer than promised it took; negative if it was faster
    """,
)

#: Ratio of two neighbouring bins of a histogram. Its quantiles are within 1 %.
RATIO = 1.02

#: What happened to a message that stopped its group. Dead letter: it was received as often as its
#: queue allows, and not deleted. Unknown: the journals show neither, or not yet.
OUTCOMES = ("succeeded", "dead letter", "unknown")

GROUP_STOPS = _table(
    "group_stops",
    "each message of a FIFO queue that failed and so stopped its group: the messages behind it "
    "wait",
    "the stop",
    f"""
    queue string: name of the queue
    grp string: the message's group
    msg string: SQS message id
    task string: name of the task
    task_id string: Celery's task id
    stopped_at bigint: when its first attempt failed; for an abandoned one, its last event
    resumed_at bigint: when its delete was confirmed, or else the group's next receive; or null
    seconds double: from stop to resume, in seconds; until the data's end if it has not resumed
    attempts int: how often the message was received, by SQS's count
    waiting bigint: messages behind it that a worker released because their group was stopped
    outcome string: {", ".join(f"`{outcome}`" for outcome in OUTCOMES)}
    """,
)

DURATIONS = _table(
    "durations",
    "run times and waits as additive log-histograms: bin b holds durations from "
    f"{RATIO}^b to {RATIO}^(b+1) microseconds",
    "the receive",
    f"""
    queue string: name of the queue
    task string: name of the task
    measure string: `run`, `wait`, or `held`, which is from the receive to the end of the task
    vt int: visibility timeout at the receive, in seconds
    bin int: floor(log(microseconds) / log({RATIO})); 0 for durations below 1 microsecond
    spans bigint: number of durations that ended
    censored bigint: number of those that had lasted this long and continued at the end of the data
    sum_us bigint: sum of both
    """,
)

IN_FLIGHT = _table(
    "in_flight",
    "messages received and not yet ended, by queue and minute",
    "the minute",
    """
    queue string: name of the queue
    minute bigint: start of the minute
    peak bigint: largest number at once
    mean double: average over the minute
    quota_share double: peak divided by SQS's quota of 120,000
    slots bigint: tasks that the workers with messages of the queue on that day can run at once
    """,
)

CALLS = _table(
    "calls",
    "calls to SQS and their price",
    "their answers",
    """
    queue string: name of the queue
    version string: of celery-sqs-heartbeat; null if no `worker-started` line has it
    kind string: `extend`, `release` or `delete`, and `receive` for messages received
    calls double: API calls; for `receive` a minimum, because empty receives are not in the journal
    entries bigint: messages in these calls
    failed bigint: messages whose answer was not `done`
    cost_usd double: price of the calls
    saved_usd double: extra cost of one call for each message; 0 for `receive`
    """,
)

RECOMMENDATIONS = _table(
    "recommendations",
    "settings for each queue, and for tasks that need their own, with alternatives",
    "the last day that was read",
    """
    queue string: name of the queue
    task string: name of the task; null for the whole queue
    rank int: 0 for the recommendation, -1 for the current settings, 1 and up for alternatives
    visibility_timeout int: seconds
    threshold double: seconds
    interval double: seconds
    max_lease double: seconds
    calls_per_1000 double: extension calls for 1,000 attempts
    recovery_s double: expected seconds from a crash until the message is visible again
    messages bigint: number of attempts that the figures are based on
    confidence string: `high`, or `low` if too few attempts have ended
    reason string: explanation for people
    """,
)

#: The tables that `report` and `tune` read from a warehouse.
REPORTED = tuple(table for table in TABLES.values() if table is not EVENTS)
SURVEYED = (DURATIONS, ATTEMPTS, CALLS, WORKERS)
