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


def start(scene: Scene, how: str, *args: str) -> ProcessWorker:
    return scene.start_worker(
        RENAMED,
        ["-Q", scene.name, "-c", "1", *args],
        env={
            "RENAMED": how,
            "PROJ_LEDGER": str(scene.ledger),
            "PROJ_CONF": json.dumps({"task_default_queue": scene.name}),
        },
    )


@pytest.mark.oldest
def test_a_worker_does_not_start_where_names_that_it_overrides_and_imports_are_gone(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    scene.send("work", "a")
    worker = start(scene, "gone", "--heartbeat-sqs")
    assert worker.wait_for_exit() != 0
    log = worker.logs()
    assert "Error: sqs-heartbeat: 2 names that the heartbeat needs" in log
    assert "kombu.transport.SQS:Channel._get_async is missing" in log
    assert "billiard.einfo:ExceptionWithTraceback is missing" in log
    assert "--no-heartbeat-sqs" in log
    assert "Traceback (most recent" not in log
    assert scene.proxy.calls("ReceiveMessage") == []


@pytest.mark.oldest
def test_it_starts_there_without_the_heartbeat(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.send("work", "a")
    worker = start(scene, "gone", "--no-heartbeat-sqs")
    scene.wait_for_notes("end", 1)
    assert "sqs-heartbeat:" not in worker.logs()


def test_messages_that_kombu_delivers_past_the_leases_are_an_error_once_a_queue(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    worker = start(scene, "unused", "--heartbeat-sqs", "-P", "solo")
    for key in "abc":
        scene.send("work", key)
    scene.wait_for_notes("end", 3)
    scene.wait_until_empty()
    log = worker.logs()
    assert log.count("has no lease") == 1
    line = next(each for each in log.splitlines() if "has no lease" in each)
    assert "ERROR" in line
    assert f"queue {scene.name}" in line
    assert "task tests.acceptance.proj.work[" in line
