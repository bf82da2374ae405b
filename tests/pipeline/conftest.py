"""One small Spark for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.pipeline.jobs import build
from celery_sqs_heartbeat.pipeline.report.queries import Found, collect
from celery_sqs_heartbeat.pipeline.spark import new_session
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse
from tests.pipeline.cheap import CHEAP, JAVA, JAVA_VARIABLE, SUBMIT_ARGS
from tests.pipeline.journals import some_workers, write_all, write_segment


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(JAVA_VARIABLE, JAVA)
        session = new_session("tests", CHEAP)
        # Else a command that runs in this process gives the session settings of its own, which
        # stay for all tests after it: 16 partitions where one will do.
        patch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGS)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A journal of two days, with a line that can't be read, and all tables of it."""
    folder = tmp_path_factory.mktemp("built")
    journal, tables = write_all(folder / "journal", some_workers(1, days=1)), folder / "tables"
    for day in sorted(path.name.removeprefix("dt=") for path in journal.iterdir()):
        write_segment(journal, day, "torn", [], "what}\n")
    build(spark, str(journal), Warehouse(spark, str(tables)))
    return journal, tables


@pytest.fixture(scope="session")
def found(spark: SparkSession, built: tuple[Path, Path]) -> Found:
    """What the report finds in the tables of a small journal."""
    return collect(Warehouse(spark, str(built[1])), Span())
