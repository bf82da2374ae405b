"""The stops of many groups at random, as DuckDB finds them in the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from benchmarks.pipeline.sql_group_stops import GROUP_STOPS as QUERY
from celery_sqs_heartbeat.pipeline.schema import GROUP_STOPS, OUTCOMES
from celery_sqs_heartbeat.pipeline.tables.group_stops import group_stops_of
from tests.pipeline.builders import DAY, SECOND, attempts_frame, workers_frame

CAUSES = ("failed", "failed", "backoff policy", "worker died", "shutdown", "due later", None)
MESSAGES = 12


def _attempts(chance: random.Random, queue: str, group: str) -> Iterator[dict[str, Any]]:
    """Yield the attempts of one group, whose messages run one after the other."""
    ts, counts = DAY + chance.randrange(SECOND), [0] * MESSAGES

    def received(number: int, seconds: float, **values: Any) -> dict[str, Any]:
        counts[number] += 1
        msg, end = f"{queue}-{group}-{number}", ts + round(seconds * SECOND)
        row = {
            "queue": queue,
            "grp": None if chance.random() < 0.1 else group,
            "msg": msg,
            "task_id": f"t-{msg}",
            "dlv": f"{msg}-{counts[number]}",
            "rc": counts[number],
            "max_rc": chance.choice((2, None)),
            "received": ts,
            "started": ts if chance.random() < 0.8 else None,
            "finished": end,
            "ended": end + chance.randrange(SECOND),
            "last_event": end + SECOND,
            "last_vt": chance.choice((0, 5, None)),
        }
        return {**row, **values}

    for number in range(MESSAGES):
        for _ in range(chance.randrange(4)):
            seconds = chance.uniform(1, 20)
            ended_as = chance.choice(("released", "released", "lapsed", "lost", "abandoned"))
            cause = chance.choice(CAUSES)
            yield received(number, seconds, ended_as=ended_as, cause=cause)
            for behind in islice(range(number + 1, MESSAGES), chance.randrange(4)):
                away = {"ended_as": "released", "cause": "group stopped", "started": None}
                yield received(behind, seconds + chance.random() / 10, **away)
            ts += round((seconds + chance.uniform(2, 30)) * SECOND)
        if chance.random() < 0.8:
            yield received(number, 3, ended_as="deleted")
            ts += 5 * SECOND


def test_the_stops_are_those_that_duckdb_finds(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(5)
    queues = ("a.fifo", "b.fifo", "plain")
    rows = [
        row
        for queue in queues
        for group in map(str, range(12))
        for row in _attempts(chance, queue, group)
    ]
    attempts = attempts_frame(spark, *rows)
    workers = workers_frame(spark, {"last_seen": DAY + 3600 * SECOND})
    with duckdb.connect() as connection:
        for name, frame in (("attempts", attempts), ("workers", workers)):
            frame.write.parquet(f"{tmp_path}/{name}")
            connection.execute(f"CREATE VIEW {name} AS FROM '{tmp_path}/{name}/*.parquet'")
        expected = connection.sql(f"SELECT {', '.join(GROUP_STOPS.names)} FROM ({QUERY})")
        stops = sorted(expected.fetchall(), key=repr)
    found = group_stops_of(attempts, workers).collect()
    assert sorted(map(tuple, found), key=repr) == stops
    outcomes = [row.outcome for row in found]
    assert all(outcomes.count(each) > 5 for each in OUTCOMES)
    assert sum(row.waiting > 1 for row in found) > 10
