"""Workers that are started by a command of the test's own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tests.acceptance.scene import ORDERS, Scene
from tests.support.environment import SAFE_ENV
from tests.support.workers import ROOT, LoggedProcess, ProcessWorker


def worker_by(celery: Sequence[str], scene: Scene, *args: str, log: Path) -> ProcessWorker:
    """Start a worker on a scene's queue. It is for the test to end it.

    Args:
        celery: The command that is Celery's.
        log: The folder for its log.
    """
    env = {
        "CELERY_BROKER_URL": scene.proxy.broker_url,
        "PROJ_LEDGER": str(scene.ledger),
        "PROJ_CONF": json.dumps({"task_default_queue": scene.name, "imports": [ORDERS]}),
    }
    worker = ["-A", "tests.acceptance.proj", "worker", "-l", "INFO", "-Q", scene.name]
    return ProcessWorker(
        LoggedProcess(
            "worker",
            [*celery, *worker, "--heartbeat-sqs", *args],
            env={**os.environ, **SAFE_ENV, **env},
            cwd=ROOT,
            log_dir=log,
        )
    )
