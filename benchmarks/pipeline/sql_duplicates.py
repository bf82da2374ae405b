"""`duplicates` in DuckDB's SQL."""

from __future__ import annotations

MACROS = """
    -- Seconds with one decimal. Halves are rounded away from zero, unlike in DuckDB's own format.
    CREATE MACRO seconds_of(us) AS printf(
        '%s%d.%d',
        CASE WHEN us < 0 THEN '-' ELSE '' END,
        (abs(us) + 50_000) // 1_000_000,
        (abs(us) + 50_000) // 100_000 % 10
    );
    CREATE MACRO calls_of(number) AS
        printf('%d call%s', number, CASE WHEN number = 1 THEN '' ELSE 's' END);
    CREATE MACRO has_opted_out(tasks, task) AS coalesce(starts_with(
        split_part(split_part(tasks, '''' || task || ''': Rules(', 2), 'extend=', 2), 'False'
    ), FALSE);
    CREATE MACRO is_released_while_running(started, ended_as, cause) AS
        started IS NOT NULL AND ended_as IN ('released', 'lapsed')
        AND NOT coalesce(
            cause IN (
                'failed', 'kept', 'backoff policy', 'delete refused', 'asked by task', 'retried'
            ),
            FALSE
        );
    -- When an execution ended. If it was cut off, its last event.
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
        lead(received) OVER in_order AS next_received
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
        AND prior IS NOT NULL
),
pairs AS (
    SELECT * REPLACE (prior.next_received AS next_received),
        is_released_while_running(prior.started, prior.ended_as, prior.cause)
            AS is_prior_given_back,
        is_prior_given_back OR (prior.ended_as = 'abandoned' AND prior.finished IS NULL)
            AS is_cut_off,
        CASE WHEN NOT is_cut_off THEN greatest(
            least(
                end_of(prior.finished, prior.ended_as, prior.last_event, data_end),
                end_of(finished, ended_as, last_event, data_end)
            ) - greatest(prior.started, started),
            0
        ) END AS overlap_us,
        has_succeeded(prior.finished, prior.ended_as, prior.cause)
            AND has_succeeded(finished, ended_as, cause) AND NOT is_cut_off AS both_succeeded,
        coalesce(prior.dlv, '') AS first_dlv,
        dlv AS second_dlv,
        prior.vt::BIGINT * 1_000_000 AS vt_us
    FROM executions, (SELECT max(last_seen) AS data_end FROM workers)
    WHERE is_cut_off OR overlap_us > 0
        OR (has_succeeded(prior.finished, prior.ended_as, prior.cause) AND NOT is_cut_off)
),
lives AS (
    SELECT wid,
        max(last_seen) AS last_seen,
        max(last_seq) - min(first_seq) + 1 - sum(lines) AS missing,
        max(settings['tasks']) FILTER (contains(settings['tasks'], 'extend=False')) AS tasks
    FROM workers
    GROUP BY wid
),
-- The times from which lines are missing. No segment of what is measured is damaged.
holes AS (
    SELECT wid AS lost_by, least(ts_before, ts) AS since, greatest(ts_before, ts) AS until
    FROM (
        SELECT wid, seq, ts, lag(seq) OVER numbers AS seq_before, lag(ts) OVER numbers AS ts_before
        FROM events
        WHERE wid IN (SELECT wid FROM lives WHERE missing > 0)
        WINDOW numbers AS (PARTITION BY wid ORDER BY seq)
    )
    WHERE seq > seq_before + 1
),
lost_since AS (
    SELECT first_dlv, next_received, max(least(until, next_received)) AS lost_until
    FROM pairs JOIN holes ON lost_by = prior.wid
    WHERE since <= next_received + 1_000_000 AND until >= prior.received - 1_000_000
    GROUP BY ALL
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
        max(ts) FILTER (is_refused) AS refused_at,
        count(*) FILTER (is_refused) AS refused,
        count(*) FILTER (is_bad AND ev IN ('lease-extended', 'extension-failed')) AS tries,
        max(lat_us) FILTER (is_bad AND lat_us > vt_us * (1 / 6)) AS slow_us,
        max(-slack_us) FILTER (is_bad AND is_extended AND slack_us <= 0) AS extended_late_us,
        max(ts) FILTER (ev = 'lease-capped' AND ts <= next_received) AS capped_at
    FROM (
        SELECT *,
            planned >= coalesce(good_at, 0) AND planned < next_received AS is_bad,
            is_bad AND ev = 'extension-failed' AND err IN ('denied', 'no-queue') AS is_refused
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
permissions AS (
    SELECT wid, queue, ts, ev = 'permission-denied' AS is_denied
    FROM events
    WHERE ev IN ('permission-denied', 'permission-granted') AND act IN ('extend', 'release')
),
judged AS (
    SELECT known.*, lost_until, lives.last_seen AS first_last_seen,
        has_opted_out(lives.tasks, known.task) AS is_opted_out,
        (
            -- Since when its worker could not extend any lease of the queue.
            SELECT CASE
                WHEN max(ts) FILTER (is_denied) > coalesce(max(ts) FILTER (NOT is_denied), 0)
                THEN max(ts) FILTER (is_denied)
            END
            FROM permissions
            WHERE permissions.wid = known.prior.wid AND permissions.queue = known.queue
                AND permissions.ts < known.next_received
        ) AS denied_at,
        (
            -- How long the keeper was stopped when the lease expired.
            SELECT max(late.late_us) FROM late
            WHERE late.wid = known.prior.wid
                AND late.ts >= known.sure_until - 1_000_000
                AND late.ts - late.late_us < known.next_received
        ) AS late_us
    FROM known
    LEFT JOIN lost_since USING (first_dlv, next_received)
    LEFT JOIN lives ON lives.wid = known.prior.wid
),
ends AS (
    SELECT *,
        coalesce(
            prior.ended_as IN ('deleted', 'released', 'lapsed')
            AND prior.ended < next_received + 1_000_000,
            FALSE
        ) AS has_ended_before,
        next_received < sure_until - 1_000_000
            AND NOT (has_ended_before AND prior.ended_as <> 'deleted') AS is_early,
        next_received - prior.last_event AS silent_us,
        prior.ended_as = 'abandoned'
            AND coalesce(first_last_seen < next_received + 1_000_000, TRUE) AS is_gone,
        greatest(error_at, unanswered_at, 0) AS failed_at,
        {
            'cause': 'lines-lost',
            'evidence': printf('lines of its worker %s are missing from that time', prior.wid)
        } AS lines_of_it
    FROM judged
),
caused AS (
    SELECT *, CASE
        WHEN prior.cause = 'worker died' AND has_ended_before THEN {
            'cause': 'died-while-running',
            'evidence': printf(
                'worker %s died, and its keeper released the message %s s before the next receive',
                prior.wid,
                seconds_of(next_received - prior.ended)
            )
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
                'SQS refused its delete %s s before the next receive',
                seconds_of(next_received - prior.ended)
            )
        }
        WHEN lost_until > prior.last_event
            AND (is_early OR (prior.ended_as = 'abandoned' AND prior.finished IS NOT NULL))
            THEN lines_of_it
        WHEN is_early THEN {
            'cause': 'second-delivery',
            'evidence': printf(
                'received again %s s before the lease could end',
                seconds_of(sure_until - next_received)
            )
        }
        WHEN is_gone AND prior.finished IS NOT NULL THEN {
            'cause': 'died-after-success',
            'evidence': printf(
                'its task had ended, its delete was not confirmed, then its worker %s was silent; '
                    || 'received again %s s after that',
                prior.wid,
                seconds_of(silent_us)
            )
        }
        WHEN capped_at >= coalesce(good_at, 0) THEN {
            'cause': 'capped',
            'evidence': printf(
                'not extended any more from %s s before the next receive',
                seconds_of(next_received - capped_at)
            )
        }
        WHEN late_us IS NOT NULL THEN {
            'cause': 'keeper-starved',
            'evidence': printf('the keeper was delayed by %s s', seconds_of(late_us))
        }
        WHEN greatest(refused_at, denied_at) > failed_at THEN {
            'cause': 'not-permitted',
            'evidence': printf(
                'SQS refused %s to extend it: not permitted%s',
                calls_of(coalesce(refused, 0)),
                CASE WHEN denied_at IS NULL THEN '' ELSE printf(
                    '; it refused them for the whole queue from %s s before the next receive',
                    seconds_of(next_received - denied_at)
                ) END
            )
        }
        WHEN unanswered_at > coalesce(error_at, 0) THEN {
            'cause': 'network',
            'evidence': printf(
                'SQS did not answer %s since the last extension', calls_of(unanswered)
            )
        }
        WHEN error_at IS NOT NULL THEN {
            'cause': 'sqs-errors',
            'evidence': printf(
                'SQS answered %s with errors since the last extension, %d of them throttled',
                calls_of(errors), throttled
            )
        }
        WHEN slow_us IS NOT NULL THEN {
            'cause': 'sqs-slow',
            'evidence': printf('a call took %s s', seconds_of(slow_us))
        }
        WHEN lost_until > prior.last_event AND prior.ended_as = 'abandoned' THEN lines_of_it
        WHEN is_gone THEN {
            'cause': 'died-while-running',
            'evidence': printf(
                'its worker %s was silent from %s s before the next receive on',
                prior.wid,
                seconds_of(silent_us)
            )
        }
        WHEN extended_late_us > 0 THEN {
            'cause': 'keeper-starved',
            'evidence': printf(
                'extended %s s too late, although calls were fast', seconds_of(extended_late_us)
            )
        }
        WHEN is_opted_out AND good_at IS NULL AND coalesce(tries, 0) = 0 THEN {
            'cause': 'opted-out',
            'evidence': printf(
                'its task has sqs_heartbeat=False: its timeout of %d s ended, and was not extended',
                prior.vt
            )
        }
        WHEN lost_until IS NOT NULL THEN lines_of_it
        ELSE {'cause': 'unknown', 'evidence': 'nothing in the journals shows why'}
    END AS told
    FROM ends
)
SELECT queue, msg, task, task_id, overlap_us, both_succeeded, told.cause, told.evidence,
    prior.wid AS first_wid,
    prior.rc AS first_rc,
    prior.started AS first_started,
    prior.finished AS first_finished,
    prior.ended_as AS first_ended_as,
    wid AS second_wid,
    rc AS second_rc,
    started AS second_started,
    finished AS second_finished,
    ended_as AS second_ended_as,
    day_of(started) AS dt
FROM caused
"""
