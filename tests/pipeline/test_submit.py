"""The job on a cluster, by `spark-submit`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from celery_sqs_heartbeat.pipeline import schema, submit
from celery_sqs_heartbeat.pipeline.engine.makers import MAKERS
from tests.pipeline.cheap import CHEAP
from tests.pipeline.cluster import cluster
from tests.pipeline.journals import has_parquet, rows_in
from tests.support.markdown import ROOT
from tests.support.waiting import SPARK_PATIENCE, wait_until

pytestmark = pytest.mark.thorough

TABLES = tuple(schema.TABLES.values())


def test_a_cluster_that_loses_a_machine_makes_the_tables_of_one_machine(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    assert {*MAKERS, schema.EVENTS, schema.REJECTS} == set(TABLES)
    journal, alone = built
    tables = tmp_path / "tables"
    with cluster(tmp_path, workers=2) as machines:
        conf = {
            **CHEAP,
            "spark.master": machines.url,
            # This way both have a part of everything.
            "spark.default.parallelism": "2",
            "spark.sql.shuffle.partitions": "2",
            # Both are there before the first task: a machine without a task has none to lose.
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{SPARK_PATIENCE:.0f}s",
            # An executor that is only slow is not lost.
            "spark.network.timeout": f"{SPARK_PATIENCE:.0f}s",
            "spark.executor.memory": "600m",
            "spark.executor.extraJavaOptions": CHEAP["spark.driver.extraJavaOptions"],
        }
        command = [str(Path(sys.executable).with_name("spark-submit"))]
        command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        command += [str(submit.__file__), "run"]
        command += ["--journal", str(journal), "--warehouse", str(tables)]
        out, log = tmp_path / "out", tmp_path / "log"
        # In files: a pipe that no one reads yet may be full.
        with out.open("wb") as stdout, log.open("wb") as stderr:
            run = subprocess.Popen(
                command,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
                stdout=stdout,
                stderr=stderr,
            )
        try:
            wait_until(
                lambda: run.poll() is not None or has_parquet(tables / "events"),
                timeout=SPARK_PATIENCE,
            )
            machines.workers[0].end()
            run.wait(timeout=SPARK_PATIENCE)
        finally:
            run.kill()
            run.wait()
    logged, printed = log.read_text(), out.read_text()
    # The journal has a line that can't be read.
    assert run.returncode == 1, logged[-5000:]
    assert "Lost executor" in logged
    assert "Read the journal from 2026-03-14" in printed
    assert all(table.name in printed for table in TABLES)
    expected = rows_in(alone, TABLES)
    assert all(expected.values())
    assert rows_in(tables, TABLES) == expected
