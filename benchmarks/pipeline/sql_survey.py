"""The measurements of a fleet in DuckDB's SQL: the rows behind the recommendations.

In a row about a whole queue, `task` is null.
"""

from __future__ import annotations

LAST_DAY = "SELECT max(dt) FROM durations"

FLEET = """
SELECT
    sum(us)::BIGINT AS worker_us,
    max(concurrency) AS concurrency,
    arg_max(settings, started) FILTER (settings IS NOT NULL) AS settings
FROM (
    SELECT
        max(last_seen) - min(first_seen) AS us,
        max(concurrency) AS concurrency,
        min(first_seen) FILTER (settings IS NOT NULL) AS started,
        any_value(settings) AS settings
    FROM workers
    GROUP BY wid
)
"""

#: The histograms of queues, and of tasks with enough messages.
HISTOGRAMS = """
WITH of_tasks AS (
    SELECT queue, task, measure, vt, bin,
        sum(spans)::BIGINT AS spans,
        sum(censored)::BIGINT AS censored
    FROM durations
    WHERE measure IN ('held', 'run')
    GROUP BY ALL
),
frequent AS (
    SELECT queue, task FROM of_tasks
    WHERE measure = 'held' AND task IS NOT NULL
    GROUP BY ALL
    HAVING sum(spans) >= 1000
)
SELECT queue, NULL AS task, measure, vt, bin, sum(spans)::BIGINT, sum(censored)::BIGINT
FROM of_tasks
GROUP BY ALL
UNION ALL
SELECT queue, task, measure, vt, bin, spans, censored
FROM of_tasks SEMI JOIN frequent USING (queue, task)
"""

CRASHES = """
SELECT queue, task, count(*) AS crashes
FROM attempts
WHERE ended_as = 'abandoned'
GROUP BY GROUPING SETS ((queue), (queue, task))
HAVING grouping(task) = 1 OR task IS NOT NULL
"""

#: The delays of extending calls, by queue, and the keepers' stalls, whose `queue` is null.
LATENESSES = """
SELECT queue, bin_of(coalesce(late_us, lat_us, 0)) AS bin,
    count(*) AS entries,
    sum(parts_of(batch))::BIGINT AS parts
FROM events
WHERE ev = 'keeper-late' OR batch IS NOT NULL AND ev IN (
    'lease-extended', 'extension-failed', 'lease-lost', 'lease-capped'
)
GROUP BY ALL
"""
