"""What a report says of workers that were killed, whose truth is known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.processes import keepers_on
from tests.acceptance.record import wait_for_extensions
from tests.acceptance.scene import Scene
from tests.pipeline.cheap import JAVA, JAVA_VARIABLE, SUBMIT_ARGS
from tests.support.environment import SAFE_ENV


def test_a_report_blames_a_killed_worker_by_name(
    new_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    scene, journal = new_scene(attributes={"VisibilityTimeout": "10"}), tmp_path / "journal"
    # Extended about every second.
    conf = {"sqs_heartbeat_journal": str(journal), "sqs_heartbeat_threshold": 9}
    scene.send("hold", "a")
    killed = scene.worker("-c", "1", conf=conf)
    wait_for_extensions(scene, 1, since=0.0)
    (folder,) = journal.glob("dt=*/worker=*")
    killed.kill()
    scene.wait_until(lambda: keepers_on(scene) == [])
    scene.let_end("a")
    last = scene.worker("-c", "1", conf=conf)
    scene.wait_until_empty()
    last.kill("SIGTERM")
    assert last.wait_for_exit() == 0
    page = tmp_path / "report.html"
    command = "celery -b memory:// sqs-heartbeat report"
    subprocess.run(
        [sys.executable, "-m", *command.split(), str(journal), "--out", str(page)],
        env={**os.environ, **SAFE_ENV, JAVA_VARIABLE: JAVA, "PYSPARK_SUBMIT_ARGS": SUBMIT_ARGS},
        check=True,
        capture_output=True,
    )
    shown = page.read_text()
    assert "died-while-running" in shown
    assert f"worker {folder.name.removeprefix('worker=')} died" in shown
