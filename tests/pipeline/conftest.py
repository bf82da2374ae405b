"""One small Spark for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engine.session import new_session
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK
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
    """A journal of two days, and all tables as the job makes them of it."""
    folder = tmp_path_factory.mktemp("built")
    journal, tables = write_all(folder / "journal", some_workers(1, days=1)), folder / "tables"
    for day in sorted(path.name.removeprefix("dt=") for path in journal.iterdir()):
        write_segment(journal, day, "torn", [], "what}\n")
    engine_of(SPARK).build(spark, str(journal), str(tables))
    return journal, tables
