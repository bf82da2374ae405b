"""Days are replaced one by one, and only when all rows are there."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import mkdtemp

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine.sail import warehouse as module
from celery_sqs_heartbeat.pipeline.engine.sail.warehouse import SailWarehouse, folder_of, sweep
from celery_sqs_heartbeat.pipeline.errors import PipelineError

TABLE = schema.REJECTS
DAYS = [date(2026, 3, day) for day in range(1, 5)]


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> SailWarehouse:
    return SailWarehouse(spark, str(tmp_path / "w"))


def rows(spark: SparkSession, of: dict[date, int]) -> DataFrame:
    """Return a row for each day, with so many lines."""
    told = [("file", "corrupt line", lines, day) for day, lines in of.items()]
    return spark.createDataFrame(told, TABLE.ddl)


def lines_in(warehouse: SailWarehouse) -> dict[date, int]:
    return {row["dt"]: row["lines"] for row in warehouse.read(TABLE).collect()}


def test_a_write_replaces_its_days_and_leaves_the_others(
    spark: SparkSession, warehouse: SailWarehouse
) -> None:
    warehouse.write(TABLE, rows(spark, {DAYS[0]: 1, DAYS[1]: 1}))
    warehouse.write(TABLE, rows(spark, {DAYS[1]: 2, DAYS[2]: 2}))
    assert lines_in(warehouse) == {DAYS[0]: 1, DAYS[1]: 2, DAYS[2]: 2}


def test_days_that_have_no_rows_any_more_are_emptied(
    spark: SparkSession, warehouse: SailWarehouse
) -> None:
    warehouse.write(TABLE, rows(spark, dict.fromkeys(DAYS, 1)))
    warehouse.write(TABLE, rows(spark, {DAYS[1]: 2}), DAYS[1], DAYS[2])
    assert lines_in(warehouse) == {DAYS[0]: 1, DAYS[1]: 2, DAYS[3]: 1}
    warehouse.write(TABLE, warehouse.nothing(TABLE), DAYS[0], DAYS[3])
    assert lines_in(warehouse) == {}


def test_days_are_those_of_the_table_whatever_folder_it_is_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = SailWarehouse(spark, str(tmp_path / f"dt={DAYS[1]}" / "w"))
    warehouse.write(TABLE, rows(spark, dict.fromkeys(DAYS, 1)), DAYS[0], DAYS[3])
    warehouse.write(TABLE, rows(spark, {DAYS[1]: 2}), DAYS[1], DAYS[1])
    assert lines_in(warehouse) == {DAYS[0]: 1, DAYS[1]: 2, DAYS[2]: 1, DAYS[3]: 1}


def test_a_place_that_can_not_be_written_is_reported(
    spark: SparkSession,
    warehouse: SailWarehouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").touch()
    below = SailWarehouse(spark, str(tmp_path / "file" / "w"))
    with pytest.raises(PipelineError, match=r"warehouse '.*/file/w' can't be written: .*Not a dir"):
        below.write(TABLE, rows(spark, {DAYS[0]: 1}))

    def rename(path: Path, target: Path) -> Path:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(path), None, str(target))

    # As if another file system were mounted in place of a table.
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(PipelineError, match=r"can't be written: .*Invalid cross-device link"):
        warehouse.write(TABLE, rows(spark, {DAYS[0]: 1}))


def test_a_write_that_fails_changes_nothing(spark: SparkSession, warehouse: SailWarehouse) -> None:
    warehouse.write(TABLE, rows(spark, {DAYS[0]: 1}))
    fails = F.raise_error(F.lit("no rows today")).cast("bigint")
    with pytest.raises(PySparkException, match="no rows today"):
        warehouse.write(TABLE, rows(spark, {DAYS[0]: 2}).withColumn("lines", fails))
    assert lines_in(warehouse) == {DAYS[0]: 1}
    assert [path.name for path in Path(warehouse.path).iterdir()] == [TABLE.name]


def test_a_table_that_is_not_there_has_no_rows(warehouse: SailWarehouse) -> None:
    assert warehouse.read(TABLE, DAYS[0], DAYS[1]).collect() == []
    assert warehouse.read(TABLE).columns == list(TABLE.names)


def test_a_day_that_can_not_be_replaced_is_put_back(
    spark: SparkSession, warehouse: SailWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.write(TABLE, rows(spark, {DAYS[0]: 1}))
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if "made" in path.parts:
            raise KeyboardInterrupt
        return real(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            warehouse.write(TABLE, rows(spark, {DAYS[0]: 2}))
    assert lines_in(warehouse) == {DAYS[0]: 1}


def test_a_path_may_be_a_file_url_and_have_blanks(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c#d"
    SailWarehouse(spark, str(folder)).write(TABLE, rows(spark, {DAYS[0]: 1}))
    assert lines_in(SailWarehouse(spark, str(folder))) == {DAYS[0]: 1}
    (tmp_path / "w").mkdir()
    for url in (f"file:{tmp_path}/w", f"file://localhost{tmp_path}/w"):
        assert SailWarehouse(spark, url).path == str(tmp_path / "w")


def test_a_day_that_a_killed_run_had_moved_away_is_put_back(
    spark: SparkSession, warehouse: SailWarehouse
) -> None:
    warehouse.write(TABLE, rows(spark, dict.fromkeys(DAYS[:2], 1)))
    gone = Path(warehouse.path, ".making-killed", "gone", TABLE.name)
    gone.mkdir(parents=True)
    for day, is_replaced in ((DAYS[0], False), (DAYS[1], True)):
        folder = Path(warehouse.path, TABLE.name, f"dt={day}")
        folder.rename(gone / folder.name)
        if is_replaced:
            warehouse.write(TABLE, rows(spark, {day: 2}))
    sweep(warehouse.path, older_than=time.time() + 1)
    assert lines_in(warehouse) == {DAYS[0]: 1, DAYS[1]: 2}
    assert [path.name for path in Path(warehouse.path).iterdir()] == [TABLE.name]


def test_a_day_that_a_killed_run_had_emptied_stays_empty(
    spark: SparkSession, warehouse: SailWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.write(TABLE, rows(spark, dict.fromkeys(DAYS[:2], 1)))

    @contextmanager
    def never_removed(**options: str) -> Iterator[str]:
        yield mkdtemp(**options)

    with monkeypatch.context() as killed:
        killed.setattr(module, "TemporaryDirectory", never_removed)
        warehouse.write(TABLE, rows(spark, {DAYS[1]: 2}), DAYS[0], DAYS[1])
    sweep(warehouse.path, older_than=time.time() + 1)
    assert lines_in(warehouse) == {DAYS[1]: 2}


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("file:///data/run#1", "/data/run#1"),
        ("file:///data/x?y", None),
        ("//data/[x/y", None),
        ("//data//tables", "/data/tables"),
        ("/data/runs:old/tables", "/data/runs:old/tables"),
        ("file://localhost/data", "/data"),
        ("file:/data", "/data"),
        ("file://host/data", None),
        ("s3a://bucket/data", None),
        ("hdfs:/data", None),
    ],
)
def test_a_folder_is_named_by_its_path_or_by_a_url_of_files(path: str, folder: str | None) -> None:
    if folder is None:
        with pytest.raises(PipelineError, match=r"engine sail .* or use the engine spark"):
            folder_of(path, "warehouse")
    else:
        assert folder_of(path, "warehouse") == Path(folder)


def test_files_of_a_killed_run_are_deleted_once_they_are_old(tmp_path: Path) -> None:
    for name, changed in ((".making-old", 100), (".making-new", 300), ("events", 100)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (changed, changed))
    sweep(str(tmp_path), older_than=200)
    assert {path.name for path in tmp_path.iterdir()} == {".making-new", "events"}
