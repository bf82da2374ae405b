"""The stream gives what the batch job gives, whatever kills it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.__main__ import main
from celery_sqs_heartbeat.pipeline.engine import stream
from celery_sqs_heartbeat.pipeline.engine.alerts import Alerts
from tests.pipeline.builders import DAY, frame_of
from tests.pipeline.journals import has_parquet, rows_in, some_workers, write_all
from tests.pipeline.report_tables import DT
from tests.support.markdown import ROOT
from tests.support.waiting import SPARK_PATIENCE, wait_until

pytestmark = pytest.mark.thorough
#: The command with batches that never end: whenever it is killed, it is in a batch.
ENDLESS = """
import threading
from celery_sqs_heartbeat.pipeline.__main__ import main
from celery_sqs_heartbeat.pipeline.engine.alerts import Alerts
Alerts.tell = lambda *_: threading.Event().wait()
main()
"""


def test_killed_and_restarted_it_gives_the_tables_of_the_batch_job(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    # The workers of the journal that was built, one after the other.
    first, *others = some_workers(1, days=1)
    write_all(journal, [first])
    arguments = ["stream", "--journal", str(journal), "--warehouse", str(tables)]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, *arguments, "--every", "1"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # In the middle of the first batch: it has begun to write its first table.
        wait_until(
            lambda: process.poll() is not None or has_parquet(tables / "events"),
            timeout=SPARK_PATIENCE,
        )
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not [*(tmp_path / "checkpoint").glob("stream/commits/0")]

    write_all(journal, others)
    result = CliRunner().invoke(main, [*arguments, "--once"])
    assert result.exit_code == 0, result.output

    expected = rows_in(built[1], stream.FRESH)
    assert all(expected.values())
    assert rows_in(tables, stream.FRESH) == expected
    alerts = [json.loads(line)["msg"] for line in result.stdout.splitlines()]
    assert len(alerts) == len(expected["duplicates"])


def test_each_duplicate_is_reported_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    def duplicates(*messages: str) -> DataFrame:
        found = [
            {"queue": "q", "msg": msg, "second_rc": 2, "second_started": DAY, "dt": DT}
            for msg in messages
        ]
        return frame_of(spark, schema.DUPLICATES, found)

    told: list[str] = []
    Alerts(spark, str(tmp_path / "alerts"), told.append).tell(duplicates("m1"), 0)
    again = Alerts(spark, str(tmp_path / "alerts"), told.append)
    again.tell(duplicates("m1", "m2"), 1)
    again.tell(duplicates("m1", "m2"), 2)
    assert ['"m1"' in line for line in told] == [True, False]
