"""`in_flight` in DuckDB's SQL."""

from __future__ import annotations

#: Sorting all changes takes twice as long as sorting only those of seconds whose peak may exceed
#: the highest value at the end of any second of their minute.
IN_FLIGHT = """
WITH stays AS (
    SELECT queue, wid, received AS begin,
        greatest(
            coalesce(
                ended,
                least(
                    CASE WHEN ended_as IS DISTINCT FROM 'running' THEN greatest(
                        last_event,
                        coalesce(last_extended, received)
                            + coalesce(last_vt, vt, 0)::BIGINT * 1_000_000
                    ) END,
                    (SELECT max(last_event) FROM attempts),
                    received + 43_200_000_000
                )
            ),
            received
        ) AS until
    FROM attempts
),
changes AS (
    SELECT queue, begin AS ts, 1 AS step FROM stays
    UNION ALL
    SELECT queue, until, -1 FROM stays
),
by_second AS (
    SELECT queue, ts // 1_000_000 AS second,
        sum(step) AS net,
        count(*) FILTER (step > 0) AS more,
        -- Their contribution to the rest of their minute, in messages times microseconds.
        sum(step * (60_000_000 - ts % 60_000_000)) AS area
    FROM changes
    GROUP BY ALL
),
seconds AS (
    SELECT *,
        second // 60 AS number,
        sum(net) OVER (PARTITION BY queue ORDER BY second) AS after
    FROM by_second
),
by_minute AS (
    SELECT queue, number, sum(net) AS net, sum(area) AS area, max(after) AS reached
    FROM seconds
    GROUP BY ALL
),
unclear AS (
    SELECT queue, second, number, after - seconds.net AS before
    FROM seconds JOIN by_minute USING (queue, number)
    WHERE before + more > reached
),
exact AS (
    SELECT queue, number, max(level) AS exact
    FROM (
        -- If one message leaves in the microsecond in which another arrives, it leaves first.
        SELECT queue, number, before + sum(step) OVER (
            PARTITION BY queue, second ORDER BY ts, step ROWS UNBOUNDED PRECEDING
        ) AS level
        FROM unclear
        JOIN (SELECT *, ts // 1_000_000 AS second FROM changes) USING (queue, second)
    )
    GROUP BY ALL
),
minutes AS (
    SELECT queue,
        number * 60_000_000 AS minute,
        sum(net) OVER in_order AS after,
        after - net AS before,
        lead(minute) OVER in_order AS next,
        greatest(before, reached, exact) AS peak,
        before + area / 60_000_000 AS mean
    FROM by_minute LEFT JOIN exact USING (queue, number)
    WINDOW in_order AS (PARTITION BY queue ORDER BY number)
),
every_minute AS (
    SELECT queue, minute, peak, mean FROM minutes
    UNION ALL
    -- The minutes in which nothing changed while messages were in flight.
    SELECT queue, unnest(range(minute + 60_000_000, next, 60_000_000)), after, after
    FROM minutes
    WHERE after > 0
),
holders AS (
    SELECT DISTINCT queue, wid,
        unnest(generate_series("first", "last", INTERVAL 1 DAY))::DATE AS dt
    FROM (
        SELECT DISTINCT queue, wid,
            make_timestamp(begin)::DATE AS "first", make_timestamp(until)::DATE AS "last"
        FROM stays
    )
),
-- A worker lives from its first line of the day to its last, and to midnight where it wrote on
-- the day beside that.
lives AS (
    SELECT wid, dt,
        max(concurrency) OVER (PARTITION BY wid) AS size,
        CASE WHEN lag(dt) OVER days = dt - 1
            THEN first_seen - first_seen % 86_400_000_000 ELSE first_seen END AS begin,
        CASE WHEN lead(dt) OVER days = dt + 1
            THEN first_seen - first_seen % 86_400_000_000 + 86_400_000_000
            ELSE last_seen END AS until
    FROM workers
    WINDOW days AS (PARTITION BY wid ORDER BY dt)
),
steps AS (
    SELECT queue, dt, begin AS ts, 0 AS is_less, size AS step
    FROM holders JOIN lives USING (wid, dt)
    UNION ALL
    SELECT queue, dt, until, 1, -size FROM holders JOIN lives USING (wid, dt)
),
slots AS (
    SELECT queue, dt, max(level)::BIGINT AS slots
    FROM (
        SELECT queue, dt, sum(step) OVER (
            PARTITION BY queue, dt ORDER BY ts, is_less, step ROWS UNBOUNDED PRECEDING
        ) AS level
        FROM steps
        WHERE step IS NOT NULL
    )
    GROUP BY ALL
)
SELECT *, peak / 120_000 AS quota_share
FROM (SELECT *, make_timestamp(minute)::DATE AS dt FROM every_minute)
LEFT JOIN slots USING (queue, dt)
"""
