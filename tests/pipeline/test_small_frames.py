"""Frames of rows that Python has."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.storage.small_frames import MOST_IN_PLAN, frame_of

DDL = "`wid` string, seq bigint, part double, day date, is_cut boolean, queues array<string>"
ROW = {
    "wid": "w\N{LATIN SMALL LETTER E WITH ACUTE}'\"\\\n",
    "seq": 2**53 + 1,
    "part": 0.1,
    "day": datetime.date(2026, 3, 2),
    "is_cut": True,
    "queues": ["a", "b"],
}
UNKNOWN = dict.fromkeys(ROW)


def rows_of(spark: SparkSession, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame_of(spark, rows, DDL).collect()]


@pytest.mark.parametrize("times", [1, MOST_IN_PLAN], ids=["in the plan", "by Python"])
def test_values_of_all_types_are_kept(spark: SparkSession, times: int) -> None:
    rows = [ROW, UNKNOWN] * times
    assert rows_of(spark, rows) == rows


def test_maps_are_kept(spark: SparkSession) -> None:
    row = {"skews": {"2026-03-02": -5}}
    (found,) = frame_of(spark, [row], "skews map<string, bigint>").collect()
    assert found.asDict() == row


def test_few_rows_need_no_python_process(spark: SparkSession) -> None:
    plan = frame_of(spark, [ROW], DDL)._jdf.queryExecution().executedPlan().toString()
    assert "ExistingRDD" not in plan


def test_no_rows_are_an_empty_relation_with_the_columns(spark: SparkSession) -> None:
    frame = frame_of(spark, [], schema.WORKERS.ddl)
    assert frame.columns == list(schema.WORKERS.names)
    assert frame.collect() == []
    assert "LocalTableScan <empty>" in frame._jdf.queryExecution().executedPlan().toString()
