"""The sums, as DuckDB finds them in the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline.schema import RATIO
from celery_sqs_heartbeat.pipeline.tables.calls import calls_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
from celery_sqs_heartbeat.pipeline.tables.in_flight import in_flight_of
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    message,
    workers_frame,
)

_CALLS = """
    SELECT queue, workers.versions['celery-sqs-heartbeat'] AS version,
        CASE WHEN ev = 'message-deleted' THEN 'delete' ELSE 'extend' END AS kind,
        round(sum(1 / batch), 6) AS calls, count(*) AS entries, count(err) AS failed
    FROM events LEFT JOIN workers USING (wid)
    WHERE batch IS NOT NULL
    GROUP BY ALL
"""
_DURATIONS = f"""
    SELECT queue, task, measure, bin, count(*) FILTER (ended) AS spans,
        count(*) FILTER (NOT ended) AS censored, sum(us)::BIGINT AS sum_us
    FROM (
        SELECT queue, task, 'wait' AS measure, TRUE AS ended, wait_us AS us FROM attempts
        UNION ALL
        SELECT queue, task, 'run', finished IS NOT NULL,
            coalesce(finished, if(ended_as = 'running', last, last_event)) - started
        FROM attempts, (SELECT max(last_event) AS last FROM attempts)
        UNION ALL
        SELECT queue, task, 'held', finished IS NOT NULL,
            coalesce(finished, if(ended_as = 'running', last, last_event)) - received
        FROM attempts, (SELECT max(last_event) AS last FROM attempts)
    ), LATERAL (SELECT floor(ln(greatest(us, 1)) / ln({RATIO}))::INT AS bin)
    GROUP BY ALL
"""
_IN_FLIGHT = """
    WITH last AS (SELECT max(last_event) AS last FROM attempts),
    stays AS (
        SELECT queue, received AS begin, CASE
            WHEN ended IS NOT NULL THEN ended
            WHEN ended_as = 'running' THEN last
            ELSE least(last, greatest(last_event, received + last_vt * 1000000)) END AS "end"
        FROM attempts, last
    ),
    steps AS (
        SELECT queue, begin AS ts, 1 AS step FROM stays
        UNION ALL SELECT queue, "end", -1 FROM stays
    ),
    levels AS (
        SELECT queue, ts, sum(step) OVER w AS level, lead(ts) OVER w AS until
        FROM steps
        WINDOW w AS (PARTITION BY queue ORDER BY ts, step ROWS UNBOUNDED PRECEDING)
    ),
    pieces AS (
        SELECT queue, minute, level,
            greatest(0, least(until, minute + 60000000) - greatest(ts, minute)) AS us
        FROM levels, LATERAL (
            SELECT unnest(range(ts - ts % 60000000, coalesce(until, ts) + 1, 60000000)) AS minute
        )
    )
    SELECT queue, minute, max(level)::BIGINT AS peak,
        round(coalesce(sum(level * us), 0) / 60000000, 6) AS mean
    FROM pieces GROUP BY ALL HAVING max(level) > 0
"""


def _attempts(chance: random.Random) -> list[dict[str, Any]]:
    rows = []
    for number in range(400):
        received = DAY + chance.randrange(0, 600 * SECOND)
        started = received + chance.randrange(0, 20 * SECOND)
        done = started + round(chance.expovariate(0.05) * SECOND) + 1
        row = {
            "msg": f"m{number}",
            "queue": "hot" if chance.random() < 0.95 else "cold",
            "task": chance.choice(("proj.a", "proj.b")),
            "received": received,
            "started": started,
            "wait_us": started - received,
            "vt": 30,
            "last_vt": 30,
            "last_event": started,
            "ended_as": chance.choice(("running", "abandoned")),
        }
        if chance.random() < 0.9:
            row |= {"finished": done, "ended": done + 50_000, "last_event": done + 50_000}
            row |= {"run_us": done - started, "ended_as": "deleted"}
        rows.append(row)
    return rows


def _events(chance: random.Random) -> list[dict[str, Any]]:
    events = []
    for number in range(150):
        batch = chance.randint(1, 10)
        ev, err = chance.choice(
            (("lease-extended", None), ("extension-failed", "failed"), ("message-deleted", None))
        )
        said = {"call": number, "batch": batch, "err": err, "wid": chance.choice(("w1", "w2"))}
        queue = chance.choice(("hot", "cold.fifo"))
        events += [message(ev, number, queue=queue, lat_us=1, **said) for _ in range(batch)]
    return events


class _Oracle:
    """The frames, as DuckDB reads them from Parquet."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        chance = random.Random(11)
        self.attempts = attempts_frame(spark, *_attempts(chance))
        self.events = events_frame(spark, *_events(chance))
        self.workers = workers_frame(
            spark, {"wid": "w1", "versions": {"celery-sqs-heartbeat": "1.0"}, "concurrency": 4}
        )
        self._duckdb = duckdb.connect()
        for name in ("attempts", "events", "workers"):
            getattr(self, name).write.parquet(f"{folder}/{name}")
            files = f"{folder}/{name}/*.parquet"
            self._duckdb.execute(f"CREATE VIEW {name} AS SELECT * FROM '{files}'")

    def check(self, frame: DataFrame, query: str) -> None:
        answer = self._duckdb.execute(query)
        names = [column[0] for column in answer.description]
        expected = sorted(answer.fetchall(), key=repr)
        found = [
            tuple(round(it, 6) if isinstance(it, float) else it for it in row)
            for row in frame.select(*names).collect()
        ]
        assert expected
        assert sorted(found, key=repr) == expected


@pytest.fixture(scope="module")
def oracle(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Oracle]:
    return _Oracle(spark, tmp_path_factory.mktemp("oracle"))


def test_calls_are_those_that_duckdb_counts(oracle: _Oracle) -> None:
    oracle.check(calls_of(oracle.events, oracle.workers), _CALLS)


def test_durations_are_those_that_duckdb_counts(oracle: _Oracle) -> None:
    oracle.check(durations_of(oracle.attempts), _DURATIONS)


def test_in_flight_is_what_duckdb_finds_with_all_events_in_order(oracle: _Oracle) -> None:
    found = in_flight_of(oracle.attempts, oracle.workers)
    oracle.check(found.where("peak > 0"), _IN_FLIGHT)
