"""`attempts` in DuckDB's SQL."""

from __future__ import annotations

ATTEMPTS = """
WITH lines AS (
    SELECT *, CASE ev
        WHEN 'message-deleted' THEN 'deleted'
        WHEN 'message-released' THEN 'released'
        WHEN 'message-lapsing' THEN 'lapsed'
        WHEN 'delete-abandoned' THEN 'lapsed'
    END AS "end"
    FROM events
    WHERE msg IS NOT NULL AND dlv IS NOT NULL
),
deliveries AS (
    SELECT
        queue, msg, dlv, wid, task, task_id,
        max(rc) AS rc,
        max(max_rc) AS max_rc,
        max(cause) FILTER (ev = 'message-received') AS received_as,
        max(sent) AS sent,
        max("first") AS "first",
        max(grp) AS grp,
        max(sn) AS sn,
        coalesce(
            min(ts) FILTER (ev = 'message-received'), min(ts - coalesce(held_us, 0))
        ) AS received,
        min(ts) FILTER (ev = 'task-started') AS started,
        max(ts - ended_us) AS finished,
        max(ts) FILTER ("end" IS NOT NULL) AS ended,
        max(ts) AS last_event,
        arg_max("end", seq) FILTER ("end" IS NOT NULL) AS "end",
        arg_max(cause, seq) FILTER (
            cause IS NOT NULL
            AND ("end" IN ('released', 'lapsed') OR ("end" = 'deleted' AND cause = 'sent again'))
        ) AS cause,
        max(vt) FILTER (ev = 'message-received') AS vt,
        arg_max(coalesce(vt, 0), seq) FILTER ("end" = 'released' OR vt IS NOT NULL) AS last_vt,
        max(ts) FILTER (ev = 'lease-extended') AS last_extended,
        count(*) FILTER (ev = 'lease-extended') AS extensions,
        count(*) FILTER (ev = 'extension-failed') AS failures,
        min(ts) FILTER (ev = 'lease-expired') AS expired,
        min(ts) FILTER (ev = 'lease-lost') AS lost,
        min(ts) FILTER (ev = 'lease-capped') AS capped,
        min(slack_us) FILTER (ev = 'lease-extended') AS min_slack_us,
        max(lat_us) AS max_latency_us,
        arg_max(err, seq) FILTER (err IS NOT NULL) AS last_error
    FROM lines
    GROUP BY queue, msg, dlv, wid, task, task_id
),
of_many AS (
    SELECT *,
        lead(received) OVER receives AS received_again,
        CASE
            WHEN received_as IN ('redelivered', 'finished')
                AND lag("end" IS NULL, 1, FALSE) OVER of_worker THEN 0
            ELSE 1
        END AS is_new_lease
    FROM deliveries
    WHERE "end" IS NULL OR rc IS DISTINCT FROM 1
    WINDOW
        receives AS (PARTITION BY queue, msg ORDER BY rc NULLS FIRST, received, dlv),
        of_worker AS (PARTITION BY queue, msg, wid ORDER BY rc NULLS FIRST, received, dlv)
),
leases AS (
    SELECT *, sum(is_new_lease) OVER (
        PARTITION BY queue, msg, wid ORDER BY rc NULLS FIRST, received, dlv
    ) AS lease
    FROM of_many
),
in_order AS (
    SELECT * EXCLUDE (is_new_lease, lease),
        lead(received) OVER of_lease AS continued,
        min(started) OVER (of_lease ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            AS started_before
    FROM leases
    WINDOW of_lease AS (PARTITION BY queue, msg, wid, lease ORDER BY rc NULLS FIRST, received, dlv)
    UNION ALL BY NAME
    -- A message that was settled after its only receive needs no more.
    FROM deliveries WHERE "end" IS NOT NULL AND rc = 1
)
SELECT
    in_order.* EXCLUDE (started, ended, "end"),
    coalesce(started_before, in_order.started) AS started,
    coalesce(ended, continued, lost, capped) AS ended,
    CASE
        WHEN "end" IS NOT NULL THEN "end"
        WHEN continued IS NOT NULL THEN 'continued'
        WHEN lost IS NOT NULL THEN 'lost'
        WHEN capped IS NOT NULL THEN 'capped'
        WHEN received_again IS NOT NULL OR workers.stopped IS NOT NULL THEN 'abandoned'
        -- 15 minutes after its last line and its lease, other workers still write lines.
        WHEN data_end > greatest(
            last_seen + 900_000_000, last_event + coalesce(last_vt, 0) * 1_000_000
        ) THEN 'abandoned'
        ELSE 'running'
    END AS ended_as,
    in_order.started - received AS wait_us,
    CASE WHEN continued IS NULL
        THEN finished - coalesce(started_before, in_order.started)
    END AS run_us,
    make_timestamp(received)::DATE AS dt
FROM in_order
LEFT JOIN (
    SELECT wid, max(stopped) AS stopped, max(last_seen) AS last_seen,
        max(max(last_seen)) OVER () AS data_end
    FROM workers
    GROUP BY wid
) AS workers USING (wid)
"""
