"""`duplicates` in DuckDB's SQL."""

from __future__ import annotations

MACROS = """
    -- Seconds with one decimal, halves rounded away from zero: DuckDB's own format does not.
    CREATE MACRO seconds_of(us) AS printf(
        '%s%d.%d',
        CASE WHEN us < 0 THEN '-' ELSE '' END,
        (abs(us) + 50_000) // 1_000_000,
        (abs(us) + 50_000) // 100_000 % 10
    );
    CREATE MACRO is_released_while_running(started, ended_as, cause) AS
        started IS NOT NULL AND ended_as IN ('released', 'lapsed')
        AND NOT coalesce(cause IN ('failed', 'backoff policy', 'delete refused'), FALSE);
    -- When an execution ended; of one that was cut off, its last event.
    CREATE MACRO end_of(finished, ended_as, last_event, data_end) AS coalesce(
        finished, CASE WHEN ended_as = 'abandoned' THEN last_event ELSE data_end END
    );
    CREATE MACRO has_succeeded(finished, ended_as, cause) AS
        finished IS NOT NULL AND NOT (
            coalesce(cause <> 'delete refused', FALSE) AND ended_as IN ('released', 'lapsed')
        );
"""

#: `prior` is the attempt that ran the task before this one.
DUPLICATES = """
WITH receives AS (
    SELECT * REPLACE (
            CASE
                WHEN started IS NULL THEN finished
                ELSE max(finished) OVER (PARTITION BY queue, msg, wid, started)
            END AS finished
        ),
        lead(received) OVER in_order AS next_received,
        lead(rc) OVER in_order AS next_rc,
        rc > coalesce(lag(rc) OVER in_order, 0) + 1 AS has_gap
    FROM (
        SELECT queue, msg, task, task_id, wid, rc, dlv, received_as, received, started, finished,
            ended, ended_as, cause, vt, last_event
        FROM attempts
        WHERE msg IN (SELECT msg FROM attempts WHERE rc > 1)
    )
    WINDOW in_order AS (PARTITION BY queue, msg ORDER BY rc NULLS FIRST, received, dlv)
),
executions AS (
    SELECT *, last_value(CASE WHEN started IS NOT NULL THEN receives END IGNORE NULLS) OVER (
        PARTITION BY queue, msg ORDER BY rc NULLS FIRST, received, dlv
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS prior
    FROM receives
    QUALIFY started IS NOT NULL
        AND (coalesce(received_as = 'new', TRUE) OR started >= received)
        AND (has_gap OR prior IS NOT NULL)
),
pairs AS (
    SELECT * REPLACE (
            coalesce(prior.next_received, received) AS next_received,
            CASE WHEN has_gap THEN rc ELSE prior.next_rc END AS next_rc
        ),
        is_released_while_running(prior.started, prior.ended_as, prior.cause)
            AS is_prior_given_back,
        is_prior_given_back OR (prior.ended_as = 'abandoned' AND prior.finished IS NULL)
            AS is_cut_off,
        CASE WHEN NOT has_gap AND NOT is_cut_off THEN greatest(
            least(
                end_of(prior.finished, prior.ended_as, prior.last_event, data_end),
                end_of(finished, ended_as, last_event, data_end)
            ) - greatest(prior.started, started),
            0
        ) END AS overlap_us,
        CASE WHEN NOT has_gap THEN
            has_succeeded(prior.finished, prior.ended_as, prior.cause)
            AND has_succeeded(finished, ended_as, cause) AND NOT is_cut_off
        END AS both_succeeded,
        coalesce(prior.dlv, '') AS first_dlv,
        dlv AS second_dlv,
        prior.vt::BIGINT * 1_000_000 AS vt_us
    FROM executions, (SELECT max(last_seen) AS data_end FROM workers)
    WHERE has_gap OR is_cut_off OR overlap_us > 0
        OR (has_succeeded(prior.finished, prior.ended_as, prior.cause) AND NOT is_cut_off)
),
told AS (
    SELECT *,
        ts - coalesce(lat_us, 0) AS planned,
        ev = 'lease-extended' AS is_extended,
        is_extended AND ts <= next_received AND slack_us > 0 AS is_good
    FROM (
        SELECT first_dlv, second_dlv, next_received, vt_us, prior.received AS begun FROM pairs
    )
    JOIN (
        SELECT ev, ts, dlv AS first_dlv, vt, slack_us, lat_us, err FROM events
        WHERE ev IN (
            'lease-extended', 'extension-failed', 'lease-lost', 'lease-capped', 'message-released',
            'message-lapsing', 'message-deleted', 'delete-failed', 'delete-abandoned'
        )
    ) USING (first_dlv)
),
confirmed AS (
    SELECT first_dlv, second_dlv,
        max(ts) FILTER (is_good) AS good_at,
        coalesce(
            max(planned + vt::BIGINT * 1_000_000) FILTER (is_good), max(begun + vt_us)
        ) AS extended_until
    FROM told
    GROUP BY first_dlv, second_dlv
),
calls AS (
    SELECT first_dlv, second_dlv, good_at, extended_until,
        max(ts) FILTER (is_bad AND err IN ('throttled', 'failed', 'unsure')) AS error_at,
        count(*) FILTER (is_bad AND err IN ('throttled', 'failed', 'unsure')) AS errors,
        count(*) FILTER (is_bad AND err = 'throttled') AS throttled,
        max(ts) FILTER (is_bad AND err = 'unknown') AS unanswered_at,
        count(*) FILTER (is_bad AND err = 'unknown') AS unanswered,
        max(lat_us) FILTER (is_bad AND lat_us > vt_us * (1 / 6)) AS slow_us,
        max(-slack_us) FILTER (is_bad AND is_extended AND slack_us <= 0) AS extended_late_us,
        max(ts) FILTER (ev = 'lease-capped' AND ts <= next_received) AS capped_at
    FROM (
        SELECT *, planned >= coalesce(good_at, 0) AND planned < next_received AS is_bad
        FROM told JOIN confirmed USING (first_dlv, second_dlv)
    )
    GROUP BY ALL
),
known AS (
    SELECT *, coalesce(extended_until, prior.received + vt_us) AS sure_until
    FROM pairs LEFT JOIN calls USING (first_dlv, second_dlv)
),
late AS (
    SELECT wid, ts, late_us FROM events WHERE ev = 'keeper-late'
),
judged AS (
    SELECT *,
        (
            -- For how long the keeper stood still when the lease ran out.
            SELECT max(late.late_us) FROM late
            WHERE late.wid = known.prior.wid
                AND late.ts >= known.sure_until - 1_000_000
                AND late.ts - late.late_us < known.next_received
        ) AS late_us
    FROM known
),
ends AS (
    SELECT *,
        coalesce(
            prior.ended_as IN ('deleted', 'released', 'lapsed')
            AND prior.ended < next_received + 1_000_000,
            FALSE
        ) AS has_ended_before,
        next_received - prior.last_event AS silent_us
    FROM judged
),
caused AS (
    SELECT *, CASE
        WHEN has_gap THEN {
            'cause': 'no-heartbeat',
            'evidence': printf('receive %d of the message is in no journal', next_rc - 1)
        }
        WHEN is_prior_given_back AND has_ended_before THEN {
            'cause': 'released-while-running',
            'evidence': printf(
                'released (%s) while its task ran', coalesce(prior.cause, 'null')
            )
        }
        WHEN prior.cause = 'delete refused' AND has_ended_before THEN {
            'cause': 'delete-refused',
            'evidence': printf(
                'SQS refused its delete %s s before', seconds_of(next_received - prior.ended)
            )
        }
        WHEN next_received < sure_until - 1_000_000
            AND NOT (has_ended_before AND prior.ended_as <> 'deleted') THEN {
            'cause': 'second-delivery',
            'evidence': printf(
                'received again %s s before the lease could end',
                seconds_of(sure_until - next_received)
            )
        }
        WHEN prior.ended_as = 'abandoned' AND prior.finished IS NOT NULL THEN {
            'cause': 'died-after-success',
            'evidence': printf(
                'its task had ended, its delete was not confirmed, then its worker was silent; '
                    || 'received again %s s after that',
                seconds_of(silent_us)
            )
        }
        WHEN capped_at > coalesce(good_at, 0) THEN {
            'cause': 'capped',
            'evidence': printf(
                'not extended any more %s s before', seconds_of(next_received - capped_at)
            )
        }
        WHEN late_us IS NOT NULL THEN {
            'cause': 'keeper-starved',
            'evidence': printf('the keeper stood still for %s s', seconds_of(late_us))
        }
        WHEN unanswered_at > coalesce(error_at, 0) THEN {
            'cause': 'network',
            'evidence': printf('SQS did not answer %d calls since the last extension', unanswered)
        }
        WHEN error_at IS NOT NULL THEN {
            'cause': 'sqs-errors',
            'evidence': printf(
                'SQS answered %d calls with errors since the last extension, %d of them throttled',
                errors, throttled
            )
        }
        WHEN slow_us IS NOT NULL THEN {
            'cause': 'sqs-slow',
            'evidence': printf('a call took %s s', seconds_of(slow_us))
        }
        WHEN prior.ended_as = 'abandoned' THEN {
            'cause': 'died-while-running',
            'evidence': printf(
                'its worker was silent from %s s before the next receive on',
                seconds_of(silent_us)
            )
        }
        WHEN extended_late_us > 0 THEN {
            'cause': 'keeper-starved',
            'evidence': printf(
                'extended %s s too late, by quick calls', seconds_of(extended_late_us)
            )
        }
        ELSE {'cause': 'unknown', 'evidence': 'nothing in the journals tells why'}
    END AS told
    FROM ends
)
SELECT queue, msg, task, task_id, overlap_us, both_succeeded, told.cause, told.evidence,
    CASE WHEN has_gap THEN NULL ELSE prior.wid END AS first_wid,
    CASE WHEN has_gap THEN rc - 1 ELSE prior.rc END AS first_rc,
    CASE WHEN has_gap THEN NULL ELSE prior.started END AS first_started,
    CASE WHEN has_gap THEN NULL ELSE prior.finished END AS first_finished,
    CASE WHEN has_gap THEN NULL ELSE prior.ended_as END AS first_ended_as,
    wid AS second_wid,
    rc AS second_rc,
    started AS second_started,
    finished AS second_finished,
    ended_as AS second_ended_as,
    day_of(started) AS dt
FROM caused
"""
