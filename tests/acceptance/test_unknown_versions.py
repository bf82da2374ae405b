"""With an unknown Celery or kombu, a worker never runs without leases unnoticed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.acceptance.scene import Scene
from tests.support.workers import ProcessWorker

pytestmark = pytest.mark.fresh
NewScene = Callable[..., Scene]
RENAMED = "tests.acceptance.renamed"


def start(scene: Scene, *args: str) -> ProcessWorker:
    return scene.start_worker(
        RENAMED,
        ["-Q", scene.name, "-c", "1", *args],
        env={
            "PROJ_LEDGER": str(scene.ledger),
            "PROJ_CONF": json.dumps({"task_default_queue": scene.name}),
        },
    )


@pytest.mark.versions
def test_a_worker_does_not_start_without_a_name_that_it_needs(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.send("work", "a")
    worker = start(scene, "--heartbeat-sqs")
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    assert "Error: sqs-heartbeat: the installed versions do not work together:" in log
    assert "  - kombu.transport.SQS:Channel._schedule_queue is missing" in log
    assert "--no-heartbeat-sqs" in log
    assert "Traceback (most recent" not in log
    assert scene.proxy.calls("ReceiveMessage") == []


@pytest.mark.versions
def test_it_starts_there_without_the_heartbeat(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.send("work", "a")
    worker = start(scene, "--no-heartbeat-sqs")
    scene.wait_for_notes("end", 1)
    assert "sqs-heartbeat:" not in worker.logs()
