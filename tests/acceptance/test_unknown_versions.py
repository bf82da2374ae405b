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
@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("gone", "kombu.transport.SQS:Channel._schedule_queue is missing"),
        ("old", "Celery or kombu is older than 5.5"),
        ("not importable", "cannot import name 'ExceptionWithTraceback' from 'billiard.einfo'"),
    ],
)
def test_a_worker_does_not_start_with_an_old_version_or_without_a_name_that_it_needs(
    new_scene: NewScene, how: str, fault: str
) -> None:
    scene = new_scene()
    scene.send("work", "a")
    worker = start(scene, how, "--heartbeat-sqs")
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    assert "Error: sqs-heartbeat: the installed versions do not work together:" in log
    assert f"  - {fault}" in log
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
