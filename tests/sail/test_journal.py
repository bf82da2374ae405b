"""Spark reads the journals that Sail can't read. An error names what neither can read."""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from datetime import date
from pathlib import Path

import pytest
import zstandard
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.journal.reading import open_segments
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine.sail import intake as module
from celery_sqs_heartbeat.pipeline.engine.sail.warehouse import SailWarehouse
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.options import SAIL
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, rows_in, write_all, write_segment
from tests.pipeline.test_events import put
from tests.sail.conftest import BySpark

UNKNOWN = '{"v":1,"ts":1773446400000000,"seq":9,"wid":"w2","ev":"what"}\n'
build = engine_of(SAIL).build

#: Bytes at the end of a segment's lines, or as a segment on their own.
FAULTS = {
    "a line without an end": '{"v":1,"ts":17734',
    "a line that is no JSON": "what}\n",
    "a line of another version": UNKNOWN.replace('"v":1', '"v":2'),
    "a line of an unknown event": UNKNOWN,
    "a line that lacks its time": UNKNOWN.replace('"ts":1773446400000000,', ""),
    "a number that is a text": UNKNOWN.replace('"seq":9', '"seq":"nine"'),
}


#: Segments of which Sail reads a part or nothing, mostly without an error.
DAMAGED = {
    "no zstd": b"damaged",
    "an empty file": b"",
    "an empty frame": zstandard.compress(b""),
    "a cut frame that is not the first": zstandard.compress(b"\n") + zstandard.compress(b"x")[:-3],
}


@pytest.fixture
def one_worker(tmp_path: Path) -> Path:
    worker = Worker("w1", DAY)
    worker.attempt("m1", 1, DAY, 20, "message-deleted")
    return write_all(tmp_path / "journal", [worker])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_line_that_is_no_event_is_noticed(
    spark: SparkSession,
    one_worker: Path,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_segment(one_worker, "2026-03-14", "w2", [], FAULTS[fault])
    # A Python that does nothing: it matters only that it is called.
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PipelineError, match=r"neither Sail nor Spark could make events.* Sail: "):
        build(spark, str(one_worker), str(tmp_path / "w"))


def test_a_closed_segment_that_was_cut_is_noticed(
    spark: SparkSession, one_worker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (segment,) = one_worker.rglob("*.zst")
    segment.write_bytes(segment.read_bytes()[:-9])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PipelineError, match=r"neither Sail nor Spark could make events.* Sail: "):
        build(spark, str(one_worker), str(tmp_path / "w"))


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_segment_that_is_not_whole_is_noticed(
    spark: SparkSession,
    one_worker: Path,
    damage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(one_worker, "seg-2.jsonl.zst", DAMAGED[damage])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PipelineError, match=r"neither Sail nor Spark could make events.* Sail: "):
        build(spark, str(one_worker), str(tmp_path / "w"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("what}\n", r"^nothing of the journal '.*/j' can be read of 2026-03-14 \(corrupt"),
        ('{"v":1,"ts":1773446400000000,"seq":1,"ev":"worker-started","wid":"w1"}\nwhat}\n', ""),
    ],
)
def test_the_commands_print_what_spark_says_about_a_journal(
    spark: SparkSession,
    spark_python: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    said: str,
) -> None:
    """Nothing is an event here. Spark also says that there is no message, which is no fault."""
    write_segment(tmp_path / "j", "2026-03-14", "w1", [], text)
    monkeypatch.setattr(sys, "executable", spark_python)
    with pytest.raises(PipelineError, match=said) if said else nullcontext():
        build(spark, str(tmp_path / "j"), str(tmp_path / "w"), tables=())


def test_a_journal_with_faults_gives_the_tables_and_rejects_that_spark_gives(
    spark: SparkSession,
    spark_python: str,
    by_spark: BySpark,
    one_worker: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number, end in enumerate(FAULTS.values()):
        write_segment(one_worker, "2026-03-14", f"w-{number}", [], end)
    for number, damaged in enumerate(DAMAGED.values(), 2):
        put(one_worker, f"seg-{number}.jsonl.zst", damaged)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(sys, "executable", spark_python)
        build(spark, str(one_worker), str(tmp_path / "sail"))
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        f"some lines or segments of {one_worker} are not as workers write them, and Sail can't "
        "skip those: Spark reads the journal instead"
    )
    by_spark(one_worker, tmp_path / "spark", "events")
    tables = (schema.EVENTS, schema.REJECTS)
    made = rows_in(tmp_path / "sail", tables)
    assert made == rows_in(tmp_path / "spark", tables)
    assert len(made["rejects"]) == len(FAULTS) + len(DAMAGED)
    for segment in [*one_worker.rglob("worker=w-*/*"), *one_worker.rglob("seg-[2-9].jsonl.zst")]:
        segment.unlink()
    build(spark, str(one_worker), str(tmp_path / "sail"))
    assert SailWarehouse(spark, str(tmp_path / "sail")).read(schema.REJECTS).collect() == []


def test_a_segment_that_is_closed_while_it_is_read_is_read_again(
    spark: SparkSession, one_worker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (closed,) = one_worker.rglob("*.zst")
    is_open = closed.with_suffix(".open")
    is_open.write_text("half of what it will b")
    looked: list[Path] = []

    def look(journal: Path) -> list[Path]:
        # The second time comes after the failed read.
        if looked:
            is_open.unlink(missing_ok=True)
        looked.append(journal)
        return open_segments(journal)

    monkeypatch.setattr(module, "open_segments", look)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    build(spark, str(one_worker), str(tmp_path / "w"))
    assert rows_in(tmp_path / "w", [schema.ATTEMPTS])["attempts"]


def test_days_without_a_journal_build_nothing(
    spark: SparkSession, one_worker: Path, tmp_path: Path
) -> None:
    warehouse = tmp_path / "w"
    day = date(2020, 1, 1)
    assert build(spark, str(one_worker), str(warehouse), day, day) is None
    assert not warehouse.exists()


@pytest.mark.parametrize(
    ("journal", "warehouse", "fault"),
    [
        ("nothing-here", "w", "there is no journal at"),
        ("s3a://bucket/journal", "w", "the journal is 's3a://bucket/journal': give a folder"),
        (".", "s3a://bucket/w", "the warehouse is 's3a://bucket/w': give a folder"),
        (".", "hdfs:/w", "the warehouse is 'hdfs:/w': give a folder"),
        ("file://host/journal", "w", "the journal is 'file://host/journal': give a folder"),
        *(("a" + sign, "w", "as a pattern, and the journal is") for sign in "*?[]{}"),
        (__file__, "w", "there is no journal at"),
        (".", __file__, "can't be written: .*File exists.*; give a writable folder"),
    ],
)
def test_a_path_that_is_no_folder_is_reported(
    spark: SparkSession,
    one_worker: Path,
    journal: str,
    warehouse: str,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(one_worker)
    with pytest.raises(PipelineError, match=fault):
        build(spark, journal, warehouse)
