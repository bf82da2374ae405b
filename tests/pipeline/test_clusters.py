"""The job through Spark Connect and by `spark-submit`, as a cluster runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from celery_sqs_heartbeat.pipeline import __main__
from celery_sqs_heartbeat.pipeline.schema import TABLES
from tests.pipeline.cheap import CHEAP
from tests.pipeline.journals import rows_in
from tests.support.markdown import ROOT
from tests.support.waiting import SPARK_PATIENCE

pytestmark = pytest.mark.thorough

#: The second has the server take any free port, not 15002, which another run may have.
CONNECT = {"SPARK_REMOTE": "local[1]", "SPARK_TESTING": "yes"}
SUBMIT = str(Path(sys.executable).with_name("spark-submit"))


@pytest.mark.parametrize(
    ("command", "env"),
    [
        ([sys.executable, "-m", "celery_sqs_heartbeat.pipeline"], CONNECT),
        ([SUBMIT, str(__main__.__file__)], {"PYSPARK_PYTHON": sys.executable}),
    ],
    ids=["connect", "submit"],
)
def test_the_tables_are_those_of_one_machine(
    built: tuple[Path, Path], tmp_path: Path, command: list[str], env: dict[str, str]
) -> None:
    journal, alone = built
    tables = tmp_path / "tables"
    settings = [f"{name} {value}\n" for name, value in CHEAP.items() if name != "spark.master"]
    (tmp_path / "spark-defaults.conf").write_text("".join(settings))
    of_tests = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    done = subprocess.run(
        [*command, "run", "--journal", str(journal), "--warehouse", str(tables)],
        env={**of_tests, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(tmp_path), **env},
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE,
    )
    # The journal has a line that can't be read.
    assert done.returncode == 1, done.stderr[-3000:]
    assert "Read the journal from 2026-03-14" in done.stdout
    expected = rows_in(alone, TABLES.values())
    assert all(expected.values())
    assert rows_in(tables, TABLES.values()) == expected
