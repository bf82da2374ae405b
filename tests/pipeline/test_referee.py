"""The hardest tables of a fleet's journals, and of its stopped groups, as DuckDB's SQL has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.pipeline.referee import QUERIES, differences, make_tables
from celery_sqs_heartbeat.pipeline.jobs import build
from celery_sqs_heartbeat.pipeline.schema import IN_FLIGHT, WORKERS
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse
from fleet.generator import JOURNAL, make_fleet
from tests.pipeline.journals import grouped_worker, rows_in, some_workers, write_all

pytestmark = pytest.mark.thorough


def test_spark_s_tables_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    make_fleet(tmp_path, workers=2, hours=1.0, seed=31)
    journal = write_all(tmp_path / JOURNAL, [*some_workers(5, days=2), grouped_worker(6, days=2)])
    ours, others = tmp_path / "spark", tmp_path / "duckdb"
    build(spark, str(journal), Warehouse(spark, str(ours)), tables=(WORKERS, *QUERIES))
    make_tables(ours, others)
    assert differences(ours, others) == []
    assert all(rows_in(ours, QUERIES).values())
    assert len({*map(str, rows_in(ours, [IN_FLIGHT])[IN_FLIGHT.name])}) > 50
