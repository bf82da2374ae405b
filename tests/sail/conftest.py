"""Sail in this process; Spark, which it is compared with, is that of another environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.sail.session import new_session
from fleet.making import JOURNAL, make_fleet
from tests.pipeline.test_fleet import mangle
from tests.support.markdown import ROOT

BySpark = Callable[[Path, Path, str], None]


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return new_session("tests")


@pytest.fixture(scope="session")
def spark_python() -> str:
    """The Python of an environment with Spark; `make test-sail` tells it."""
    return str(ROOT / os.environ["SPARK_PYTHON"])


@pytest.fixture(scope="session")
def by_spark(spark_python: str) -> BySpark:
    """Makes tables of a journal as users do, on Spark: all by `run`, or those of `events`."""

    def run(journal: Path, warehouse: Path, which: str) -> None:
        command = [spark_python, "-m", "celery_sqs_heartbeat.pipeline", which]
        command += ["--journal", str(journal), "--warehouse", str(warehouse)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="session")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet's journal: every cause of duplicates, clocks that are wrong, lines there twice."""
    folder = tmp_path_factory.mktemp("fleet")
    make_fleet(folder, workers=4, hours=1.1, seed=24)
    return mangle(folder / JOURNAL, 1, tmp_path_factory.mktemp("mangled"))
