"""The tables in DuckDB's SQL: how they are read, and the tables that need only a few steps.

The names of tables are views on their Parquet files. A query's columns may be in any order, and
of any types that can be cast to those of the contract.
"""

from __future__ import annotations

from pathlib import Path

from celery_sqs_heartbeat.pipeline.prices import FIFO_USD, STANDARD_USD
from celery_sqs_heartbeat.pipeline.schema import PARTITION, RATIO, Column, Table
from celery_sqs_heartbeat.pipeline.tables.calls import CALL_PARTS

_TYPES = {"string": "VARCHAR", "map<string,string>": "MAP(VARCHAR, VARCHAR)"}


def literal(path: Path) -> str:
    """Return a path as SQL has it."""
    return "'" + str(path).replace("'", "''") + "'"


def type_of(column: Column) -> str:
    """Return a column's type as DuckDB names it."""
    return _TYPES.get(column.type, column.type)


def parquet_of(warehouse: Path, table: Table) -> str:
    """Return the expression that reads a table of a warehouse."""
    files = literal(warehouse / table.name / f"{PARTITION}=*" / "*.parquet")
    return f"read_parquet({files}, hive_partitioning = TRUE, hive_types = {{'{PARTITION}': DATE}})"


MACROS = f"""
    CREATE MACRO day_of(ts) AS make_timestamp(ts)::DATE;
    CREATE MACRO bin_of(us) AS floor(ln(greatest(us, 1)) / ln({RATIO}))::INTEGER;
    -- One entry's part of a call.
    CREATE MACRO parts_of(batch) AS {CALL_PARTS} // greatest(batch, 1);
    CREATE MACRO price_of(queue) AS
        CASE WHEN suffix(queue, '.fifo') THEN {FIFO_USD!r} ELSE {STANDARD_USD!r} END;
"""

WORKERS = """
SELECT *
FROM (
    SELECT
        wid,
        dt,
        min(ts) AS first_seen,
        max(ts) AS last_seen,
        max(ts) FILTER (ev = 'worker-stopped') AS stopped,
        count(seq) AS lines,
        min(seq) AS first_seq,
        max(seq) AS last_seq,
        count(late_us) FILTER (ev = 'keeper-late') AS late_count,
        max(late_us) FILTER (ev = 'keeper-late') AS late_max_us
    FROM events
    GROUP BY wid, dt
)
LEFT JOIN (
    SELECT wid, dt, host, pid, node, pool, concurrency, settings, versions
    FROM events
    WHERE ev = 'worker-started'
) USING (wid, dt)
"""

RECOVERIES = """
WITH receives AS (
    SELECT *,
        lead(received) OVER next_one AS next_received,
        lead(wid) OVER next_one AS next_wid,
        -- If the next receive is in no journal, nothing is known about it.
        coalesce(lead(rc) OVER next_one <= rc + 1, TRUE) AS is_known
    FROM attempts
    WHERE msg IN (
        SELECT msg FROM attempts
        WHERE ended_as IN ('released', 'lapsed', 'lost', 'capped', 'abandoned')
    )
    WINDOW next_one AS (PARTITION BY queue, msg ORDER BY rc NULLS FIRST, received, dlv)
    QUALIFY ended_as IN ('released', 'lapsed', 'lost', 'capped', 'abandoned')
),
promises AS (
    SELECT * EXCLUDE (dt),
        CASE WHEN ended_as = 'abandoned' THEN last_event ELSE coalesce(ended, last_event) END
            AS failed,
        next_received IS NULL AND coalesce(rc >= max_rc, FALSE) AS is_dead_letter,
        coalesce(next_received, CASE WHEN NOT is_dead_letter THEN data_end END) - failed
            AS recovery_us,
        CASE
            WHEN ended_as = 'released' THEN last_vt::BIGINT * 1_000_000
            WHEN last_extended IS NULL THEN greatest(received + vt::BIGINT * 1_000_000 - failed, 0)
            ELSE greatest(last_extended + last_vt::BIGINT * 1_000_000 - failed, 0)
        END AS promised_us
    FROM receives, (SELECT max(last_seen) AS data_end FROM workers)
)
SELECT * REPLACE (
        CASE WHEN is_known THEN next_received END AS next_received,
        CASE WHEN is_known THEN next_wid END AS next_wid,
        CASE WHEN is_known THEN recovery_us END AS recovery_us,
        CASE WHEN is_known THEN promised_us END AS promised_us
    ),
    next_received IS NULL AND NOT is_dead_letter AS is_censored,
    CASE WHEN is_known THEN recovery_us - promised_us END AS excess_us,
    day_of(failed) AS dt
FROM promises
WHERE cause IS DISTINCT FROM 'due later' OR is_dead_letter
"""

#: An unfinished attempt was seen until its last event, or until the end of the data if it runs.
DURATIONS = """
WITH attempts_seen AS (
    SELECT dt, queue, task, vt, received, started, finished, run_us, wait_us, ended_as,
        CASE
            WHEN finished IS NOT NULL THEN NULL
            WHEN ended_as = 'running' THEN least(
                (SELECT max(last_event) FROM attempts), received + 43_200_000_000
            )
            ELSE last_event
        END AS until
    FROM attempts
),
spans AS (
    SELECT dt, queue, task, vt, 'run' AS measure, run_us IS NULL AS is_censored, coalesce(
        run_us, CASE WHEN ended_as IS DISTINCT FROM 'continued' THEN until - started END
    ) AS us
    FROM attempts_seen
    UNION ALL
    SELECT dt, queue, task, vt, 'wait', wait_us IS NULL, coalesce(
        wait_us, CASE WHEN started IS NULL THEN until - received END
    )
    FROM attempts_seen
    UNION ALL
    SELECT dt, queue, task, vt, 'held', finished IS NULL, coalesce(finished, until) - received
    FROM attempts_seen
)
SELECT dt, queue, task, measure, vt, bin_of(us) AS bin,
    count(*) FILTER (NOT is_censored) AS spans,
    count(*) FILTER (is_censored) AS censored,
    sum(greatest(us, 0)) AS sum_us
FROM spans
WHERE us IS NOT NULL
GROUP BY ALL
"""

CALLS = f"""
WITH entries AS (
    SELECT dt, queue, wid,
        CASE
            WHEN ev IN ('message-released', 'message-lapsing') THEN 'release'
            WHEN ev IN ('message-deleted', 'delete-failed', 'delete-abandoned') THEN 'delete'
            ELSE 'extend'
        END AS kind,
        parts_of(batch) AS parts,
        err
    FROM events
    WHERE batch IS NOT NULL AND ev IN (
        'lease-extended', 'extension-failed', 'lease-lost', 'lease-capped', 'message-released',
        'message-lapsing', 'message-deleted', 'delete-failed', 'delete-abandoned'
    )
    UNION ALL
    -- Messages with the same time of request came in one call.
    SELECT dt, queue, wid, 'receive',
        CASE
            WHEN asked IS NULL THEN parts_of(10)
            WHEN asked - lag(asked) OVER in_order <= 10 THEN 0
            ELSE parts_of(1)
        END,
        err
    FROM (
        SELECT *, mono + slack_us - vt::BIGINT * 1_000_000 AS asked
        FROM events WHERE ev = 'message-received'
    )
    WINDOW in_order AS (PARTITION BY dt, queue, wid ORDER BY asked NULLS FIRST)
),
by_worker AS (
    SELECT dt, queue, wid, kind,
        sum(parts) AS parts,
        count(*) AS entries,
        count(err) AS failed
    FROM entries
    GROUP BY ALL
),
versions AS (
    SELECT wid, max(versions['celery-sqs-heartbeat']) AS version FROM workers GROUP BY wid
),
by_version AS (
    SELECT dt, queue, version, kind,
        sum(parts) / {CALL_PARTS} AS calls,
        sum(entries)::BIGINT AS entries,
        sum(failed)::BIGINT AS failed
    FROM by_worker LEFT JOIN versions USING (wid)
    GROUP BY ALL
)
SELECT *,
    calls * price_of(queue) AS cost_usd,
    (CASE WHEN kind = 'receive' THEN 0 ELSE entries - calls END) * price_of(queue) AS saved_usd
FROM by_version
"""
