"""`attempts` in DuckDB's SQL."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.pipeline.tables.deliveries import GIVEN_BACK

#: The aggregates use codes instead of texts, because DuckDB, too, aggregates numbers faster.
#: `last_code` is the code of the last line that has one.
MACROS = """
    CREATE MACRO code_of(said, known) AS
        CASE WHEN said IS NOT NULL THEN coalesce(list_position(known, said), 0) END;
    CREATE MACRO text_of(code, known, other) AS
        CASE WHEN code IS NOT NULL THEN coalesce(known[code], other) END;
    CREATE MACRO last_code(seq, code) AS max(seq * 65536 + code) % 65536;
    CREATE MACRO received_codes() AS ['redelivered', 'finished'];
    CREATE MACRO end_codes() AS ['deleted', 'released', 'lapsed'];
"""
MACROS += f"""
    CREATE MACRO cause_codes() AS {list(GIVEN_BACK[1:])};
    CREATE MACRO error_codes() AS {[each.value for each in Outcome]};
"""

ATTEMPTS = """
WITH lines AS (
    SELECT *, CASE ev
        WHEN 'message-deleted' THEN 1
        WHEN 'message-released' THEN 2
        WHEN 'message-lapsing' THEN 3
        WHEN 'delete-abandoned' THEN 3
    END AS end_code
    FROM events
    WHERE msg IS NOT NULL AND dlv IS NOT NULL
),
deliveries AS (
    SELECT
        queue, msg, dlv, wid, task, task_id,
        max(rc) AS rc,
        max(max_rc) AS max_rc,
        max(code_of(cause, received_codes())) FILTER (ev = 'message-received') AS received_code,
        max(sent) AS sent,
        max("first") AS "first",
        max(grp) AS grp,
        max(sn) AS sn,
        coalesce(
            min(ts) FILTER (ev = 'message-received'), min(ts - coalesce(held_us, 0))
        ) AS received,
        min(ts) FILTER (ev = 'task-started') AS started,
        max(ts - ended_us) AS finished,
        max(ts) FILTER (end_code IS NOT NULL) AS ended,
        max(ts) AS last_event,
        last_code(seq, end_code) AS end_code,
        max(seq * 65536 + code_of(cause, cause_codes())) FILTER (end_code >= 2) % 65536
            AS cause_code,
        max(vt) FILTER (ev = 'message-received') AS vt,
        last_code(seq, CASE WHEN end_code = 2 THEN coalesce(vt, 0) ELSE vt END) AS last_vt,
        max(ts) FILTER (ev = 'lease-extended') AS last_extended,
        count(*) FILTER (ev = 'lease-extended') AS extensions,
        count(*) FILTER (ev = 'extension-failed') AS failures,
        min(ts) FILTER (ev = 'lease-expired') AS expired,
        min(ts) FILTER (ev = 'lease-lost') AS lost,
        min(ts) FILTER (ev = 'lease-capped') AS capped,
        min(slack_us) FILTER (ev = 'lease-extended') AS min_slack_us,
        max(lat_us) AS max_latency_us,
        last_code(seq, code_of(err, error_codes())) AS error_code
    FROM lines
    GROUP BY queue, msg, dlv, wid, task, task_id
),
of_many AS (
    SELECT *,
        lead(received) OVER receives AS received_again,
        CASE
            WHEN received_code >= 1 AND lag(end_code IS NULL, 1, FALSE) OVER of_worker THEN 0
            ELSE 1
        END AS is_new_lease
    FROM deliveries
    WHERE end_code IS NULL OR rc IS DISTINCT FROM 1
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
    FROM deliveries WHERE end_code IS NOT NULL AND rc = 1
)
SELECT
    in_order.* EXCLUDE (started, ended),
    text_of(received_code, received_codes(), 'new') AS received_as,
    text_of(cause_code, cause_codes(), 'other') AS cause,
    text_of(error_code, error_codes(), 'other') AS last_error,
    coalesce(started_before, in_order.started) AS started,
    coalesce(ended, continued, lost, capped) AS ended,
    CASE
        WHEN end_code IS NOT NULL THEN end_codes()[end_code]
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
    day_of(received) AS dt
FROM in_order
LEFT JOIN (
    SELECT wid, max(stopped) AS stopped, max(last_seen) AS last_seen,
        max(max(last_seen)) OVER () AS data_end
    FROM workers
    GROUP BY wid
) AS workers USING (wid)
"""
