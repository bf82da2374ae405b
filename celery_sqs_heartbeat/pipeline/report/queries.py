"""The report's queries: sums and the worst rows, never events."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.leases.events import DUE_LATER, SENT_AGAIN
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.pipeline.schema import REPORTED
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

Rows = Sequence[Mapping[str, Any]]
#: The rows of each query, by its name below. Columns have the names of their tables.
Found = Mapping[str, Rows]

#: Duplicates, recoveries and files that are shown one by one.
SHOWN = 50
#: Of a receive that only the message's receive count shows.
IN_NO_JOURNAL = "in no journal"
#: Queues whose calls and recommendations are shown.
QUEUES = 30
#: Tasks whose durations are drawn: those that took the most time.
TASKS = 8
#: Points of a line. More can't be distinguished on a page.
POINTS = 288
#: Queues whose messages in flight are drawn: those with the highest peaks.
CURVES = 6
MINUTE_US = 60_000_000

_EPOCH, _DAY_US = datetime.date(1970, 1, 1), 86_400_000_000

#: Each query by its name. Names in braces are tables and the values of `ask`.
_QUERIES = {
    "overview": """
        SELECT count(*) AS attempts, count(DISTINCT wid) AS workers,
            count(DISTINCT queue) AS queues, count(DISTINCT task) AS tasks,
            count(started) AS started, min(received) AS begin, max(last_event) AS `end`,
            sum(extensions) AS extensions, sum(failures) AS failures,
            (SELECT count(*) FROM (SELECT DISTINCT xxhash64(msg) FROM {attempts})) AS messages
        FROM {attempts}""",
    # Running attempts whose task has not started are waiting. Released ones that SQS keeps until
    # their tasks are due are parked.
    "ends": """
        SELECT CASE WHEN ended_as = 'running' AND started IS NULL THEN 'waiting'
            WHEN ended_as = 'released' AND cause = {due_later} THEN 'parked'
            ELSE ended_as END AS ended_as, count(*) AS attempts
        FROM {attempts} GROUP BY 1 ORDER BY 2 DESC, 1""",
    # By queue, and by why no task started in a receive: null if one did. Receives whose task may
    # still start are left out, and so are those before the first day that was read.
    "receives": """
        WITH seen AS (
            SELECT queue, CASE WHEN wait_us IS NOT NULL THEN NULL
                WHEN received_as = 'finished' THEN 'finished'
                WHEN started IS NOT NULL THEN 'redelivered'
                WHEN ended_as IN ('released', 'lapsed') OR cause = {sent_again}
                    THEN coalesce(cause, 'other')
                ELSE ended_as END AS why
            FROM {attempts} WHERE ended_as != 'running' OR started IS NOT NULL),
        messages AS (
            SELECT queue, max(rc) - min(rc) + 1 - count(DISTINCT rc)
                + CASE WHEN coalesce(min(first) >= {begin}, {reads_all}) THEN min(rc) - 1 ELSE 0 END
                AS unseen
            FROM {attempts} GROUP BY queue, xxhash64(msg)),
        sums AS (
            SELECT queue, why, count(*) AS receives FROM seen GROUP BY queue, why
            UNION ALL SELECT queue, {in_no_journal}, sum(unseen) FROM messages
            GROUP BY queue HAVING sum(unseen) > 0)
        SELECT *, receives / sum(receives) OVER (PARTITION BY queue) AS share FROM sums
        ORDER BY queue, receives DESC, why""",
    "days": "SELECT DISTINCT dt FROM {workers} ORDER BY dt",
    # Lines that a worker wrote before the first day that was read are not missing.
    "workers": """
        WITH lives AS (
            SELECT max(stopped) AS stopped, sum(late_count) AS late_count, min(dt) AS begun,
                max(last_seq) - min(first_seq) + 1 - sum(lines) AS missing,
                min(first_seq) - 1 AS before
            FROM {workers} GROUP BY wid)
        SELECT count(*) AS starts, count(stopped) AS stopped, sum(missing) AS missing,
            sum(CASE WHEN begun > {first_day} THEN before END) AS before,
            sum(late_count) AS late_count
        FROM lives""",
    "causes": """
        SELECT cause, count(*) AS pairs, sum(overlap_us) AS overlap_us,
            count_if(both_succeeded) AS both_succeeded
        FROM {duplicates} GROUP BY cause ORDER BY pairs DESC, cause""",
    "duplicates": """
        SELECT * FROM {duplicates}
        ORDER BY overlap_us DESC, second_started, second_rc, queue, msg LIMIT {shown}""",
    # A message behind another one has no promised time: it returns when its group continues.
    "recoveries": """
        SELECT queue, ended_as, count(*) AS attempts, count_if(is_censored) AS censored,
            count_if(is_dead_letter) AS dead_letters, avg(promised_us) AS promised_us,
            avg(CASE WHEN NOT is_censored THEN recovery_us END) AS recovery_us,
            max(CASE WHEN NOT is_censored THEN recovery_us END) AS longest_us
        FROM {recoveries} WHERE NOT cause <=> {group_stopped}
        GROUP BY queue, ended_as ORDER BY attempts DESC, queue, ended_as LIMIT {queues}""",
    "slowest": """
        SELECT * FROM {recoveries} WHERE NOT cause <=> {group_stopped}
        ORDER BY excess_us DESC, failed, rc, queue, msg LIMIT {shown}""",
    "grouped": """
        SELECT count(*) AS receives, count(grp) AS with_group
        FROM {attempts} WHERE endswith(queue, '.fifo')""",
    "stop_sums": """
        SELECT count(DISTINCT queue, grp) AS groups, count(*) AS stops FROM {group_stops}""",
    # Each group with its worst message.
    "stopped_groups": """
        SELECT queue, grp, count(*) AS stops, sum(seconds) AS seconds, max(seconds) AS longest,
            sum(waiting) AS waiting, count_if(outcome = 'dead letter') AS dead_letters,
            min_by(msg, struct(-seconds, msg)) AS msg, min_by(task, struct(-seconds, msg)) AS task
        FROM {group_stops} GROUP BY queue, grp ORDER BY seconds DESC, queue, grp LIMIT {shown}""",
    "group_stops": """
        SELECT * FROM {group_stops}
        ORDER BY seconds DESC, stopped_at, grp, queue, msg LIMIT {shown}""",
    # The histograms of the tasks that took the most time.
    "durations": """
        WITH top AS (
            SELECT queue AS of_queue, task AS of_task, sum(sum_us) AS total_us
            FROM {durations} WHERE measure = 'run'
            GROUP BY queue, task ORDER BY total_us DESC, queue, task LIMIT {tasks})
        SELECT /*+ BROADCAST(top) */ total_us, queue, task, measure, vt, bin,
            sum(spans) AS spans, sum(censored) AS censored
        FROM {durations} JOIN top ON queue = of_queue AND task <=> of_task
        WHERE measure IN ('run', 'wait')
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY total_us DESC, queue, task, bin""",
    # A few hundred steps in total. Minutes without a row count as 0 in a step's mean.
    "in_flight": """
        WITH ends AS (
            SELECT min(minute) AS begin,
                ceil(((max(minute) - min(minute)) / {minute} + 1) / {points}) AS per_step
            FROM {in_flight}),
        top AS (
            SELECT queue, max(peak) AS top FROM {in_flight}
            GROUP BY queue ORDER BY top DESC, queue LIMIT {curves})
        SELECT /*+ BROADCAST(top), BROADCAST(ends) */ top, queue, per_step * {minute} AS step_us,
            minute - (minute - begin) % (per_step * {minute}) AS `at`, max(peak) AS peak,
            sum(mean) / per_step AS mean, max(quota_share) AS quota_share, max(slots) AS slots
        FROM {in_flight} JOIN top USING (queue) CROSS JOIN ends
        GROUP BY 1, 2, per_step, 4 ORDER BY top DESC, queue, `at`""",
    "calls": """
        SELECT queue, kind, sum(calls) AS calls, sum(entries) AS entries, sum(failed) AS failed,
            sum(cost_usd) AS cost_usd, sum(saved_usd) AS saved_usd
        FROM {calls} GROUP BY queue, kind ORDER BY cost_usd DESC, queue, kind""",
    # The newest ones.
    "recommendations": """
        SELECT * FROM {recommendations} WHERE dt = (SELECT max(dt) FROM {recommendations})
        ORDER BY messages DESC, queue, task NULLS FIRST, calls_per_1000, rank""",
    "rejects": """
        SELECT reason, file, sum(lines) AS lines FROM {rejects}
        GROUP BY reason, file ORDER BY lines DESC, file, reason LIMIT {shown}""",
}


def collect(
    warehouse: Warehouse, span: Span, progress: Callable[[str], None] = lambda _: None
) -> Found:
    """Query the warehouse's tables of those days for the report.

    Args:
        progress: Is called with the step, in a few words.
    """
    tables = {each.name: warehouse.read(each, span.first, span.last) for each in REPORTED}
    progress("querying the tables")
    # While one query is planned, another one uses the other core.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda name: ask(name, tables, span.first), _QUERIES)
        return dict(zip(_QUERIES, found, strict=True))


def ask(name: str, tables: Mapping[str, DataFrame], first: datetime.date | None) -> Rows:
    """Return the rows of one query.

    Args:
        tables: At least the tables that it reads, by name.
        first: The first day that was read; None for all.
    """
    values: dict[str, Any] = {
        "reads_all": first is None,
        "first_day": str(first or datetime.date.min),
        "begin": 0 if first is None else (first - _EPOCH).days * _DAY_US,
        "due_later": DUE_LATER,
        "sent_again": SENT_AGAIN,
        "group_stopped": GROUP_STOPPED,
        "in_no_journal": IN_NO_JOURNAL,
        "shown": SHOWN,
        "queues": QUEUES,
        "tasks": TASKS,
        "points": POINTS,
        "curves": CURVES,
        "minute": MINUTE_US,
    }
    query = _QUERIES[name]
    read = {name: table for name, table in tables.items() if f"{{{name}}}" in query}
    values.update(read)
    spark = next(iter(read.values())).sparkSession
    return [row.asDict() for row in spark.sql(query, **values).collect()]
