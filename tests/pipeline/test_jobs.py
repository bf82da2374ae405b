"""The job that builds the tables: in pieces, again, and from the command line."""

from __future__ import annotations

import runpy
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.common.days import Days, stretches
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.__main__ import main
from celery_sqs_heartbeat.pipeline.engine import jobs
from celery_sqs_heartbeat.pipeline.engine.jobs import refresh
from celery_sqs_heartbeat.pipeline.engine.makers import MAKERS, NEEDS
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.options import SPARK
from celery_sqs_heartbeat.pipeline.storage.day_folders import day_of_file
from celery_sqs_heartbeat.pipeline.storage.journal_days import journal_days
from celery_sqs_heartbeat.pipeline.storage.line_frames import read_lines
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from tests.pipeline.journals import rows_in, some_workers, write_all, write_segment
from tests.support.insides import is_nothing_cached
from tests.support.markdown import ROOT

build = engine_of(SPARK).build

FIRST = date(2026, 3, 14)
ONE_DAY = timedelta(days=1)
#: Recommendations belong to a run's last day, so they differ by run. They are also the most
#: expensive table.
TABLES = tuple(table for table in MAKERS if table is not schema.RECOMMENDATIONS)
ALL = (schema.EVENTS, schema.REJECTS, *TABLES)


@pytest.mark.thorough
def test_runs_in_pieces_and_again_give_what_one_run_gives(
    spark: SparkSession, built: tuple[Path, Path], tmp_path: Path
) -> None:
    journal, whole = str(built[0]), built[1]
    assert journal_days(spark, journal) == Days(FIRST, FIRST + ONE_DAY)
    lines = partial(read_lines, spark, journal)
    for day in (FIRST, FIRST + ONE_DAY, FIRST):
        refresh(Warehouse(spark, str(tmp_path)), lines, Days.of(day), tables=TABLES)
    expected = rows_in(whole, ALL)
    assert all(expected.values())
    assert rows_in(tmp_path, ALL) == expected


@pytest.mark.thorough
def test_nothing_is_kept_in_memory_once_the_tables_are_written(
    spark: SparkSession, built: tuple[Path, Path]
) -> None:
    assert Warehouse(spark, str(built[1])).read(schema.DUPLICATES).count() > 0
    assert is_nothing_cached(spark)


def test_each_table_comes_after_those_that_it_needs() -> None:
    order = list(MAKERS)
    for table, needed in NEEDS.items():
        assert all(order.index(other) < order.index(table) for other in needed)


def test_a_table_that_fails_ends_the_run_with_its_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no attempts today")

    monkeypatch.setattr(jobs, "MAKERS", {**MAKERS, schema.ATTEMPTS: fail})
    journal = str(write_all(tmp_path / "journal", some_workers(1, days=1)))
    with pytest.raises(RuntimeError, match="no attempts today"):
        build(spark, journal, str(tmp_path / "w"))
    made = {path.name for path in (tmp_path / "w").iterdir()}
    assert made == {"events", "rejects", "workers", "calls"}


def test_stretches_are_days_without_a_gap() -> None:
    days = [FIRST + n * ONE_DAY for n in (4, 0, 1, 1, 9, 5)]
    assert [(each.first - FIRST, each.last - FIRST) for each in stretches(days)] == [
        (0 * ONE_DAY, ONE_DAY),
        (4 * ONE_DAY, 5 * ONE_DAY),
        (9 * ONE_DAY, 9 * ONE_DAY),
    ]
    assert stretches([]) == []


@pytest.mark.parametrize(
    "path",
    [
        "/j/dt=2026-03-14/worker=w1/seg-1.jsonl.zst",
        "/j/dt=2026-03-14/part-0.parquet",
        "/j/dt=2026-03-14/",
        "/backups/dt=2025-01-01/j/dt=2026-03-14/worker=w1/seg-1.jsonl.zst",
        "/backups/dt=2025-01-01/t/dt=2026-03-14/part-0.parquet",
    ],
)
def test_the_day_of_a_file_is_that_of_the_folder_next_to_it(path: str) -> None:
    assert day_of_file(path) == date(2026, 3, 14)


def test_a_file_in_another_folder_is_of_no_day() -> None:
    assert day_of_file("/backups/dt=2025-01-01/t/dt=latest/part-0.parquet") is None


def test_a_folder_of_no_day_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    write_segment(tmp_path, "2026-13-45", "w1", [])
    with pytest.raises(
        PipelineError, match="dt=2026-13-45, which is not a valid day: move it away"
    ):
        build(spark, str(tmp_path), str(tmp_path / "w"))


def test_days_without_a_journal_build_nothing(spark: SparkSession, tmp_path: Path) -> None:
    journal = str(write_all(tmp_path / "journal", some_workers(1, days=1)[:1]))
    assert build(spark, journal, str(tmp_path / "w"), date(2020, 1, 1), date(2020, 1, 2)) is None
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--from", "2026-03-02", "--to", "2026-03-01"], "is after --to"),
        (["--from", "March"], "'March' is not a day of the calendar: write YYYY-MM-DD"),
        (["--to", "2026-02-30"], "'2026-02-30' is not a day of the calendar"),
        (["--lookback", "0"], "--lookback"),
    ],
)
def test_wrong_options_are_reported_before_spark_starts(arguments: list[str], fault: str) -> None:
    result = CliRunner().invoke(main, ["run", "--journal", "j", "--warehouse", "w", *arguments])
    assert result.exit_code == 2
    assert fault in result.output


@pytest.mark.parametrize("part", ["tables", "causes"])
def test_the_documents_show_the_tables_and_causes_as_they_are(part: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))[part]()
    assert made in (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
