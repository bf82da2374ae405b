"""Sail in this process. It is compared with the Spark of another environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engine.sail.session import new_session
from fleet.generator import JOURNAL, make_fleet
from tests.pipeline.builders import DAY, SECOND
from tests.pipeline.cheap import JAVA, JAVA_VARIABLE
from tests.pipeline.journals import grouped_worker, write_all
from tests.pipeline.test_fleet import mangle
from tests.sail.spark import MADE
from tests.support.markdown import ROOT

BySpark = Callable[[Path, Path, str], None]
#: 2026-02-28 00:00:00 UTC, the day that the fleet begins on, in microseconds.
FLEET_DAY = DAY - 14 * 86_400 * SECOND


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return new_session("tests")


@pytest.fixture(scope="session")
def spark_python() -> str:
    """The Python of an environment with Spark. `make test-sail` sets it."""
    return str(ROOT / os.environ["SPARK_PYTHON"])


@pytest.fixture(scope="session")
def by_spark(spark_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BySpark]:
    """Makes tables of a journal on Spark: all, as `run` does, or those of `events`."""
    log = tmp_path_factory.mktemp("spark") / "log"
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [spark_python, "-m", "tests.sail.spark"],
            cwd=ROOT,
            env={**env, JAVA_VARIABLE: JAVA},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):

        def run(journal: Path, warehouse: Path, which: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps([str(journal), str(warehouse), which]), file=process.stdin, flush=True)
            assert process.stdout.readline().strip() == MADE, log.read_text()

        yield run


@pytest.fixture(scope="session")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet's journal: each cause of duplicates, wrong clocks, repeated lines, and groups."""
    folder = tmp_path_factory.mktemp("fleet")
    make_fleet(folder, workers=4, hours=1.4, seed=44)
    mangled = mangle(folder / JOURNAL, 1, tmp_path_factory.mktemp("mangled"))
    return write_all(mangled, [grouped_worker(44, begin=FLEET_DAY)])
