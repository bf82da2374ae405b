"""Small frames of the tables' shapes, from dicts. Missing values are null."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from celery_sqs_heartbeat.pipeline.schema import (
    ATTEMPTS,
    EVENTS,
    PARTITION,
    REJECTS,
    WORKERS,
    Table,
)

#: 2026-03-14 00:00:00 UTC, in microseconds.
DAY = 1_773_446_400_000_000
SECOND = 1_000_000
MINUTE = 60 * SECOND

#: The column whose day a row's `dt` is, if it is not given.
_DAY_OF = {"events": "ts", "attempts": "received", "workers": "first_seen"}
_EPOCH = datetime.date(1970, 1, 1)


def frame_of(spark: SparkSession, table: Table, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return a frame of the table's schema; `dt` is filled in where it can be."""
    filled = [dict(zip(table.names, _tuple_of(table, row), strict=True)) for row in rows]
    # With Arrow, the rows are part of the plan: no Python worker transfers them.
    arrow = pyarrow.Table.from_pylist(filled, to_arrow_schema(StructType.fromDDL(table.ddl)))
    return spark.createDataFrame(arrow)


def events_frame(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Return events. `v`, `mono`, `wid`, `skew_us` and `seq`, by worker in order, are filled in."""
    numbers: dict[str, int] = {}
    filled = []
    for row in rows:
        wid = row.get("wid", "w1")
        numbers[wid] = row.get("seq", numbers.get(wid, 0) + 1)
        base = {"v": 1, "mono": row["ts"] - DAY, "wid": wid, "skew_us": 0, "seq": numbers[wid]}
        filled.append({**base, **row})
    return frame_of(spark, EVENTS, filled)


def message(ev: str, at: float, **fields: Any) -> dict[str, Any]:
    """Return an event of message `m1` at so many seconds of the day."""
    base = {
        "ev": ev,
        "ts": DAY + round(at * SECOND),
        "queue": "work",
        "msg": "m1",
        "dlv": "d1",
        "rc": 1,
        "task": "proj.add",
        "task_id": "t1",
    }
    return {**base, **fields}


def attempts_frame(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Return attempts, by default of queue `work` by worker `w1`."""
    base = {"queue": "work", "msg": "m1", "dlv": "d1", "wid": "w1", "task": "proj.add", "rc": 1}
    return frame_of(spark, ATTEMPTS, [{**base, **row} for row in rows])


def workers_frame(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Return workers, by default `w1` from midnight."""
    base = {"wid": "w1", "first_seen": DAY, "lines": 1, "first_seq": 1, "last_seq": 1}
    return frame_of(spark, WORKERS, [{**base, **row} for row in rows])


def rejects_frame(spark: SparkSession, *workers: str) -> DataFrame:
    """Return rejects: a torn segment of the day for each of these workers."""
    day = _day_of(DAY)
    rows = [
        {"file": f"dt={day}/worker={wid}/seg-1.jsonl.zst", "reason": "torn segment", "lines": 1}
        for wid in workers
    ]
    return frame_of(spark, REJECTS, [{**row, PARTITION: day} for row in rows])


def rows_of(frame: DataFrame, *columns: str) -> set[tuple[Any, ...]]:
    """Return the rows' values of some columns, as a set."""
    return {tuple(row) for row in frame.select(*columns).collect()}


def _tuple_of(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    unknown = row.keys() - set(table.names)
    assert not unknown, f"{table.name} has no {unknown}"
    day = row.get(PARTITION) or _day_of(row.get(_DAY_OF.get(table.name, "")))
    return tuple(day if name == PARTITION else row.get(name) for name in table.names)


def _day_of(ts: int | None) -> datetime.date | None:
    return None if ts is None else _EPOCH + datetime.timedelta(microseconds=ts)
