"""One small Spark for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK
from celery_sqs_heartbeat.pipeline.session import new_session
from tests.pipeline.journals import some_workers, write_all

#: Rows are few, so what counts is planning and the number of tasks: nothing is compiled,
#: nothing is planned again between stages, and nothing is kept for a UI.
CHEAP = {
    "spark.master": "local[1]",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = new_session("tests", CHEAP)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A journal, and all tables as the job makes them of it."""
    folder = tmp_path_factory.mktemp("built")
    journal, tables = write_all(folder / "journal", some_workers(1, days=1)), folder / "tables"
    engine_of(SPARK).build(spark, str(journal), str(tables))
    return journal, tables
