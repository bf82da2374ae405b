"""The job that builds the tables: in pieces, again, from S3, and from the command line."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.common.days import Days, Span, stretches
from celery_sqs_heartbeat.journal.reading import FetchError
from celery_sqs_heartbeat.pipeline import jobs, schema
from celery_sqs_heartbeat.pipeline.__main__ import main
from celery_sqs_heartbeat.pipeline.faults import PipelineError
from celery_sqs_heartbeat.pipeline.jobs import STEPS, Step, build
from celery_sqs_heartbeat.pipeline.lines import count_segments, journal_days
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse
from tests.pipeline.journals import rows_in, some_workers, write_all, write_segment
from tests.support.aws import BUCKET, serving, upload

FIRST = date(2026, 3, 14)
ONE_DAY = timedelta(days=1)
#: Recommendations belong to a run's last day, so they differ by run.
TABLES = tuple(table for table in STEPS if table is not schema.RECOMMENDATIONS)
ALL = (schema.EVENTS, schema.REJECTS, *TABLES)


@pytest.mark.thorough
def test_runs_in_pieces_and_again_give_what_one_run_gives(
    spark: SparkSession, built: tuple[Path, Path], tmp_path: Path
) -> None:
    journal, whole = str(built[0]), built[1]
    assert journal_days(spark, journal) == Days(FIRST, FIRST + ONE_DAY)
    for day in (FIRST, FIRST + ONE_DAY, FIRST):
        build(spark, journal, Warehouse(spark, str(tmp_path)), Span(day, day), tables=TABLES)
    expected = rows_in(whole, ALL)
    assert all(expected.values())
    assert rows_in(tmp_path, ALL) == expected


@pytest.mark.thorough
def test_spark_on_one_machine_reads_s3_as_if_it_were_a_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, source = write_all(tmp_path / "j", some_workers(1, days=1)), f"s3://{BUCKET}/prod"
    told: list[str] = []
    far, near = tmp_path / "far", tmp_path / "near"
    with serving(monkeypatch):
        with pytest.raises(FetchError, match=f"there is no journal at '{source}'"):
            build(spark, source, Warehouse(spark, str(far)), tables=())
        upload(journal, "prod")
        build(spark, source, Warehouse(spark, str(far)), tables=(), progress=told.append)
    assert told[0] == "copying the journal from S3"
    build(spark, str(journal), Warehouse(spark, str(near)), tables=())
    expected = rows_in(near, [schema.EVENTS])
    assert expected[schema.EVENTS.name]
    assert rows_in(far, [schema.EVENTS]) == expected


@pytest.mark.thorough
def test_a_table_that_fails_ends_the_run_with_its_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RuntimeError("no attempts today")

    monkeypatch.setattr(jobs, "STEPS", {**STEPS, schema.ATTEMPTS: Step(fail)})
    journal = str(write_all(tmp_path / "journal", some_workers(1, days=1)))
    with pytest.raises(RuntimeError, match="no attempts today"):
        build(spark, journal, Warehouse(spark, str(tmp_path / "w")))
    made = {path.name for path in (tmp_path / "w").iterdir()}
    assert made == {"events", "rejects", "workers", "calls"}


@pytest.mark.thorough
def test_a_folder_of_no_day_is_reported_and_days_without_a_journal_build_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = write_all(tmp_path / "journal", some_workers(1, days=1)[:1])
    tables = Warehouse(spark, str(tmp_path / "w"))
    assert build(spark, str(journal), tables, Span(last=date(2020, 1, 2))) is None
    write_segment(journal, "2026-13-45", "w1", [])
    with pytest.raises(PipelineError, match="dt=2026-13-45, which is not a valid day: move it aw"):
        build(spark, str(journal), tables)
    with pytest.raises(PipelineError, match=r"no journal at .*nowhere"):
        build(spark, str(tmp_path / "nowhere"), tables)
    assert not (tmp_path / "w").exists()


def test_segments_are_counted_once_by_the_days_of_their_folders(tmp_path: Path) -> None:
    journal = write_all(tmp_path / "dt=2025-01-01", some_workers(1, days=1)[:2])
    closed = next(journal.rglob("*.zst"))
    closed.with_name("seg-1.jsonl.open").touch()
    counted: list[int] = [
        count_segments(None, str(journal), span)  # type: ignore[arg-type]
        for span in (Span(), Span(FIRST, FIRST), Span(first=FIRST.replace(day=17)))
    ]
    assert counted == [len(list(journal.rglob("*.zst"))), 2, 0]


def test_stretches_are_days_without_a_gap() -> None:
    days = [FIRST + n * ONE_DAY for n in (4, 0, 1, 1, 9, 5)]
    assert [(each.first - FIRST, each.last - FIRST) for each in stretches(days)] == [
        (0 * ONE_DAY, ONE_DAY),
        (4 * ONE_DAY, 5 * ONE_DAY),
        (9 * ONE_DAY, 9 * ONE_DAY),
    ]


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
