"""Journals and tables on S3, on one machine and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.journal.reading import FetchError
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine.stream import start
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.options import SPARK
from celery_sqs_heartbeat.pipeline.storage.reach import is_out_of_reach, spark_path
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from tests.pipeline.journals import rows_in, some_workers, write_all
from tests.support.s3 import BUCKET, serving, upload

JOURNAL = f"s3://{BUCKET}/prod/eu"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with serving(monkeypatch) as client:
        yield client


def test_spark_on_one_machine_reads_it_as_if_it_were_a_folder(
    spark: SparkSession, s3: Any, tmp_path: Path
) -> None:
    journal = write_all(tmp_path / "journal", some_workers(1, days=1))
    upload(journal, "prod/eu")
    told: list[str] = []
    engine, near, far = engine_of(SPARK), tmp_path / "near", tmp_path / "far"
    run = engine.read_journal(spark, JOURNAL, str(far), progress=told.append)
    assert "copying the journal from S3" in told
    assert run == engine.read_journal(spark, str(journal), str(near))
    expected = rows_in(near, [schema.EVENTS])
    assert expected[schema.EVENTS.name]
    assert rows_in(far, [schema.EVENTS]) == expected


def test_days_of_another_tool_on_s3_are_no_journal(spark: SparkSession, s3: Any) -> None:
    for key in ("dt=2026-03-14/part-0.json", "dt=yesterday/worker=w1/seg-1.jsonl.zst"):
        s3.put_object(Bucket=BUCKET, Key=f"prod/eu/{key}", Body=b"{}")
    with pytest.raises(FetchError, match=f"there is no journal at '{JOURNAL}': no key there is"):
        engine_of(SPARK).read_journal(spark, JOURNAL, "w")


def test_a_warehouse_on_s3_is_refused_on_one_machine_before_anything_is_read(
    spark: SparkSession,
) -> None:
    with pytest.raises(PipelineError, match=r"'s3://b/tables' is on S3, .* give a folder"):
        engine_of(SPARK).build(spark, "no-journal", "s3://b/tables")


@pytest.mark.parametrize("what", ["journal", "warehouse", "checkpoint"])
def test_a_stream_is_refused_on_one_machine_where_anything_of_it_is_on_s3(
    spark: SparkSession, tmp_path: Path, what: str
) -> None:
    places = {name: str(tmp_path) for name in ("journal", "warehouse", "checkpoint")}
    places[what] = "s3://b/p"
    with pytest.raises(PipelineError, match=rf"{what} 's3://b/p' is on S3, .* on a cluster"):
        start(spark, **places, every=None, tell=print)


def test_nothing_is_copied_for_a_warehouse_that_is_refused(spark: SparkSession, s3: Any) -> None:
    told: list[str] = []
    with pytest.raises(PipelineError, match="'s3://b/tables' is on S3"):
        engine_of(SPARK).read_journal(spark, JOURNAL, "s3://b/tables", progress=told.append)
    assert told == []


@pytest.mark.parametrize(
    ("master", "path", "is_out"),
    [
        ("local[*]", "s3://b/j", True),
        ("local", "s3://b/j", True),
        ("local[*]", "s3a://b/j", False),
        ("local[*]", "/var/j", False),
        ("spark://host:7077", "s3://b/j", False),
        ("yarn", "s3://b/j", False),
        ("k8s://https://host", "s3://b/j", False),
    ],
)
def test_a_cluster_reaches_s3_by_itself(master: str, path: str, is_out: bool) -> None:
    session: Any = SimpleNamespace(conf={"spark.master": master})
    assert is_out_of_reach(session, path) is is_out
    if not is_out:
        assert Warehouse(session, path).path == spark_path(path)


def test_spark_knows_s3_by_another_name() -> None:
    assert spark_path("s3://b/j/") == "s3a://b/j"
    assert spark_path("s3a://b/s3://j") == "s3a://b/s3://j"
    assert spark_path("/var/j/") == "/var/j"
