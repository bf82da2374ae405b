"""`group_stops` in DuckDB's SQL."""

from __future__ import annotations

GROUP_STOPS = """
WITH of_fifo AS (
    SELECT *,
        CASE
            WHEN ended_as = 'abandoned' THEN last_event
            WHEN ended_as IN ('released', 'lapsed') THEN coalesce(finished, ended, last_event)
            ELSE coalesce(ended, last_event)
        END AS failed,
        ended_as IN ('released', 'lapsed', 'lost', 'capped', 'abandoned') AS is_fruitless,
        is_fruitless
            AND coalesce(cause, '') NOT IN (
                'group stopped', 'no room to wait', 'waited long', 'due later', 'shutdown',
                'consumer closed', 'not delivered'
            )
            AND (
                started IS NOT NULL
                OR ended_as = 'lapsed'
                OR coalesce(cause, '') IN ('failed', 'backoff policy', 'delete refused')
            ) AS is_stop,
        is_fruitless AND lead(received) OVER (
            PARTITION BY queue, msg ORDER BY rc NULLS FIRST, received, dlv
        ) IS NULL AS is_last
    FROM attempts
    WHERE suffix(queue, '.fifo')
),
by_message AS (
    SELECT queue, msg,
        max(grp) AS grp,
        max(task) AS task,
        max(task_id) AS task_id,
        min(received) FILTER (is_stop) AS since,
        min(failed) FILTER (is_stop) AS stopped_at,
        max(ended) FILTER (ended_as = 'deleted') AS deleted,
        max(failed) FILTER (is_last) AS last_failed,
        -- For a dead letter: when SQS would have delivered it again.
        max(
            coalesce(ended, last_event) + 1_000_000 * CASE
                WHEN ended_as = 'released' THEN coalesce(last_vt, 0)::BIGINT
                ELSE 0
            END
        ) FILTER (is_last AND rc >= max_rc) AS visible,
        max(rc) AS attempts
    FROM of_fifo
    GROUP BY queue, msg
    HAVING count(grp) > 0 AND bool_or(is_stop)
),
stops AS (
    SELECT *, coalesce(deleted, (
        SELECT min(received)
        FROM of_fifo
        WHERE of_fifo.queue = by_message.queue
            AND of_fifo.grp = by_message.grp
            AND of_fifo.received > by_message.last_failed
            AND of_fifo.cause IS DISTINCT FROM 'group stopped'
    )) AS resumed_at
    FROM by_message
),
waits AS (
    SELECT stops.queue, stops.msg, count(DISTINCT of_fifo.msg) AS waiting
    FROM of_fifo
    ASOF JOIN stops
        ON of_fifo.queue = stops.queue
        AND of_fifo.grp = stops.grp
        AND of_fifo.failed >= stops.since
    WHERE of_fifo.cause = 'group stopped'
        AND of_fifo.msg != stops.msg
        AND of_fifo.failed <= coalesce(stops.resumed_at, of_fifo.failed)
    GROUP BY ALL
)
SELECT
    queue, grp, msg, task, task_id, stopped_at, resumed_at, attempts,
    greatest(
        coalesce(resumed_at, CASE WHEN deleted IS NULL THEN visible END, data_end) - stopped_at, 0
    ) / 1_000_000 AS seconds,
    coalesce(waiting, 0) AS waiting,
    CASE
        WHEN deleted IS NOT NULL THEN 'succeeded'
        WHEN visible IS NOT NULL THEN 'dead letter'
        ELSE 'unknown'
    END AS outcome,
    make_timestamp(stopped_at)::DATE AS dt
FROM stops
LEFT JOIN waits USING (queue, msg)
CROSS JOIN (SELECT max(last_seen) AS data_end FROM workers)
"""
