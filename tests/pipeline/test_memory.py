"""The tables of a small journal, which Spark keeps in memory while a report is made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.engine import temporary
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK
from celery_sqs_heartbeat.pipeline.storage.memory import MemoryWarehouse
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, write_all
from tests.support.markdown import ROOT
from tests.support.waiting import SPARK_PATIENCE, wait_until


def rows_of(warehouse: Warehouse, table: schema.Table) -> list[str]:
    return sorted(str(row) for row in warehouse.read(table).collect())


@pytest.mark.thorough
def test_every_table_in_memory_is_the_one_in_files(
    spark: SparkSession, built: tuple[Path, Path]
) -> None:
    journal, tables = built
    memory, files = MemoryWarehouse(spark), Warehouse(spark, str(tables))
    engine_of(SPARK).build(spark, str(journal), memory)
    for table in schema.TABLES.values():
        assert rows_of(memory, table) == rows_of(files, table), table.name


def test_a_table_that_was_not_written_has_no_rows(spark: SparkSession) -> None:
    warehouse = MemoryWarehouse(spark)
    assert not warehouse.has_rows(schema.REJECTS)
    assert warehouse.read(schema.REJECTS).collect() == []
    warehouse.write(schema.REJECTS, warehouse.nothing(schema.REJECTS))
    assert not warehouse.has_rows(schema.REJECTS)


@pytest.mark.parametrize(("small", "here", "kind"), [
    (True, True, MemoryWarehouse),
    (False, True, Warehouse),
    (True, False, Warehouse),
])  # fmt: skip
def test_only_a_small_journal_on_this_machine_is_kept_in_memory(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: bool,
    here: bool,
    kind: type,
) -> None:
    monkeypatch.setattr(temporary, "is_small", lambda _: small)
    monkeypatch.setattr(temporary, "is_on_this_machine", lambda: here)
    with temporary.by_size(spark, str(tmp_path)) as warehouse:
        assert type(warehouse) is kind


def report(folder: Path, out: str, env: Mapping[str, str]) -> str:
    """Run `report` as a user does. Return its page."""
    names = ("PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS", "JAVA_HOME")
    own = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-b", "sqs://", "sqs-heartbeat", "report", "journal",
         "--out", out],
        cwd=folder,
        env={**own, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), **env},
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"Wrote \S+, \d+ kB\.\n", done.stdout)
    # No warning of Java's, and none of Spark's.
    assert re.fullmatch(r"Using Spark, because Sail.*\n", done.stderr)
    return (folder / out).read_text()


@pytest.mark.thorough
def test_a_small_report_is_the_same_with_an_archive_of_classes_or_a_damaged_one(
    tmp_path: Path,
) -> None:
    worker = Worker("w1", DAY)
    worker.attempt("m1", 1, DAY, 20, "message-deleted")
    write_all(tmp_path / "journal", [worker])
    without = report(tmp_path, "without.html", {"SQS_HEARTBEAT_CLASS_ARCHIVE": "0"})
    caches = tmp_path / "cache"
    assert not list(caches.rglob("*.jsa*"))
    assert report(tmp_path, "first.html", {}) == without
    # Java writes it after the command has ended.
    wait_until(lambda: bool(list(caches.rglob("*.jsa"))), timeout=SPARK_PATIENCE)
    assert report(tmp_path, "with.html", {}) == without
    (archive,) = caches.rglob("*.jsa")
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    assert report(tmp_path, "damaged.html", {}) == without
