"""Sail's tables are Spark's, row by row, however they are made."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.journal.reading import closed_segments, unpack
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine.sail import kept_frames
from celery_sqs_heartbeat.pipeline.engine.sail.intake import journal_days
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SAIL
from tests.pipeline.journals import rows_in, some_workers, write_all
from tests.sail.conftest import BySpark

build = engine_of(SAIL).build

#: A clean journal has no rejects.
TABLES = tuple(table for table in schema.TABLES.values() if table is not schema.REJECTS)


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sail") / "w"
    assert build(spark, str(journal), str(path)) == journal_days(journal)
    return path


@pytest.fixture(scope="module")
def made(warehouse: Path) -> dict[str, list[str]]:
    return rows_in(warehouse, TABLES)


def test_nothing_but_the_tables_is_left_in_the_warehouse(warehouse: Path) -> None:
    assert {path.name for path in warehouse.iterdir()} == set(schema.TABLES)


def test_every_row_of_every_table_is_the_one_that_spark_makes(
    journal: Path, made: dict[str, list[str]], by_spark: BySpark, tmp_path: Path
) -> None:
    by_spark(journal, tmp_path / "w", "run")
    assert all(made.values())
    assert made == rows_in(tmp_path / "w", TABLES)


def test_lines_that_need_no_correction_are_the_same_events(
    spark: SparkSession, by_spark: BySpark, tmp_path: Path
) -> None:
    """The fleet's need it: its workers' clocks are wrong. Here half of the segments are open."""
    clean = write_all(tmp_path / "journal", some_workers(1, days=2))
    for number, segment in enumerate(closed_segments(clean)):
        lines = list(unpack(segment))
        if number % 2:
            segment.with_suffix(".open").write_bytes(b"".join(lines))
            segment.unlink()
        else:
            frames = (lines[:3], lines[3:])
            segment.write_bytes(b"".join(zstandard.compress(b"".join(each)) for each in frames))
    build(spark, str(clean), str(tmp_path / "sail"))
    by_spark(clean, tmp_path / "spark", "events")
    made = rows_in(tmp_path / "sail", [schema.EVENTS])
    assert made["events"]
    assert made == rows_in(tmp_path / "spark", [schema.EVENTS])


def test_runs_in_pieces_and_again_give_what_one_run_gives(
    spark: SparkSession, journal: Path, made: dict[str, list[str]], tmp_path: Path
) -> None:
    days = journal_days(journal)
    assert days is not None
    assert days.first < days.last
    warehouse = str(tmp_path / "w")
    for day in (days.first, days.last, days.first):
        build(spark, str(journal), warehouse, day, day)
    again = rows_in(Path(warehouse), TABLES)
    # The first day's recommendations remain: they belong to another last day.
    last = str(days.last)
    again["recommendations"] = [row for row in again["recommendations"] if last in row]
    assert again == made


def test_deliveries_that_are_folded_worker_by_worker_are_the_same(
    spark: SparkSession,
    journal: Path,
    made: dict[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_frames, "MOST_LINES", 1)
    build(spark, str(journal), str(tmp_path / "w"))
    assert rows_in(tmp_path / "w", TABLES) == made
