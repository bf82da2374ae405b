from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.builders import message
from tests.pipeline.golden import golden
from tests.pipeline.test_events import encoded, frame, put
from tests.support.waiting import SPARK_PATIENCE

pytestmark = pytest.mark.thorough


def test_the_tables_are_the_same_through_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        message("message-received", 1, vt=30, cause="new", first=0, held_us=0),
        message("task-started", 2),
        message("lease-extended", 21, vt=30, slack_us=9),
        message("message-received", 40, dlv="d2", rc=2, cause="redelivered", vt=30),
        message("message-deleted", 50, dlv="d2", rc=2, ended_us=100),
        message("message-received", 60, msg="m2", dlv="d3", vt=30, cause="new"),
    ]
    lines = [{"v": 1, "mono": 0, "wid": "w1", "seq": n, **row} for n, row in enumerate(rows, 1)]
    journal = tmp_path / "journal"
    put(journal, "seg-1.jsonl.zst", frame(encoded(lines)))
    put(journal, "seg-2.jsonl.zst", b"damaged")
    put(journal, "seg-3.jsonl.open", encoded([lines[-1], "what}"]))
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.golden", str(journal), str(out)],
        # The second has the server take any free port, not 15002, which another run may have.
        env={**os.environ, "SPARK_REMOTE": "local[1]", "SPARK_TESTING": "yes"},
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE,
    )
    assert out.exists(), done.stderr[-3000:]
    module, through_connect = json.loads(out.read_text())
    assert "connect" in module
    assert through_connect == golden(spark, str(journal), str(tmp_path / "classic"))
    assert [len(rows) for rows in through_connect] == [2, 6, 1]
