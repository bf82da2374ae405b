"""What a task learns about its own lease, in the processes and threads that run it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import celery
import pytest

from tests.acceptance.lease_tasks import MODULE
from tests.acceptance.scene import LONG, Scene
from tests.support.faults import fail_entries
from tests.support.releases import CHANGE
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
#: Of a setting that Celery has since 5.7.
SPAWN = {"worker_pool_start_method": "spawn"}
#: Pools whose tasks run in other processes, which read their leases in shared memory.
POOLS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "prefork": (["-P", "prefork", "-c", "2"], {}),
    **({"spawn": (["-P", "prefork", "-c", "2"], SPAWN)} if celery.VERSION >= (5, 7) else {}),
}
#: Extended about every two seconds, with enough time left for a slow machine.
TIMEOUT, THRESHOLD = 30, 28


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workers' folder for temporary files. Workers that a test kills leave one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def start(scene: Scene, pool: str, **options: Any) -> ProcessWorker:
    args, conf = POOLS[pool]
    conf = {**conf, "imports": [MODULE]}
    if scene.attributes:
        conf["sqs_heartbeat_threshold"] = THRESHOLD
    return scene.worker(*args, conf=conf, **options)


def patient(new_scene: NewScene) -> Scene:
    return new_scene(attributes={"VisibilityTimeout": str(TIMEOUT)})


def send(scene: Scene, task: str, *args: Any) -> None:
    options = {"queue": scene.name, "routing_key": scene.name}
    scene.app.send_task(f"{MODULE}.{task}", args, **options)


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_sees_its_lease_count_down_and_grow_with_every_extension_and_no_file_is_left(
    new_scene: NewScene, folder: Path, pool: str
) -> None:
    scene = patient(new_scene)
    send(scene, "watch", "a")
    # Received once before, so that the worker's receive is the second.
    again = {"QueueUrl": scene.url, "VisibilityTimeout": 0, "WaitTimeSeconds": 1}
    assert scene.client.receive_message(**again)["Messages"]
    worker = start(scene, pool)

    def left() -> list[float]:
        return [float(note.key) for note in scene.notes("left of a")]

    scene.wait_until(lambda: sum(later > earlier for earlier, later in pairwise(left())) >= 2)
    # A cleaner of temporary files finds none, even while the task runs.
    assert not list(folder.glob("celery-sqs-heartbeat-*"))
    scene.let_end("a")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert all(0 < seconds <= TIMEOUT for seconds in left())
    (about,) = scene.keys("message")
    (received,) = [
        message
        for call in scene.proxy.calls("ReceiveMessage")
        if call.body.get("VisibilityTimeout") != 0
        for message in (call.answer or {}).get("Messages", ())
    ]
    count = int(received["Attributes"]["ApproximateReceiveCount"])
    assert count == 2
    assert json.loads(about) == ["a", received["MessageId"], count]
    worker.kill(signal.SIGTERM)
    worker.wait_for_exit()
    assert not list(folder.glob("celery-sqs-heartbeat-*"))


def test_tasks_that_run_side_by_side_see_a_lease_each(new_scene: NewScene) -> None:
    scene = patient(new_scene)
    for key in ("a", "b"):
        send(scene, "watch", key)
    conf = {"imports": [MODULE], "sqs_heartbeat_threshold": THRESHOLD}
    scene.worker("-P", "threads", "-c", "2", conf=conf)
    for key in ("a", "b"):
        scene.wait_for_notes(f"left of {key}", 10)
    for key in ("a", "b"):
        scene.let_end(key)
    scene.wait_for_notes("end", 2)
    about = dict(json.loads(key)[:2] for key in scene.keys("message"))
    sent = {
        entry["MessageId"]
        for call in scene.proxy.calls("ReceiveMessage")
        for entry in (call.answer or {}).get("Messages", ())
    }
    assert len(sent) == 2
    assert set(about.values()) == sent
    for key in about:
        assert all(float(note.key) > 0 for note in scene.notes(f"left of {key}"))


def test_a_task_whose_lease_is_lost_is_stopped_before_its_side_effect(
    new_scene: NewScene,
) -> None:
    scene = patient(new_scene)
    lost = fail_entries(code="ReceiptHandleIsInvalid", sender_fault=True)
    scene.proxy.rule(CHANGE, lost)
    start(scene, "prefork")
    send(scene, "guard", "a", 30)
    (note,) = scene.wait_for_notes("lost", 1)
    reason, message_id, remaining = json.loads(note.key)
    assert "SQS says that it is no longer ours" in reason
    assert message_id in reason
    assert remaining == 0.0
    assert scene.proxy.calls(CHANGE)


def test_a_task_that_acks_early_or_opted_out_has_no_lease(new_scene: NewScene) -> None:
    # A task that opted out is not extended, and would run again if the pool is slow.
    scene = new_scene(attributes=LONG)
    start(scene, "prefork")
    for task in ("ask_after_an_early_ack", "ask_opted_out", "ask"):
        send(scene, task)
    scene.wait_for_notes("lease", 1)
    scene.wait_for_notes("no lease, False", 2)
    opted_out, early = sorted(scene.keys("no lease, False"), key=lambda key: "acks_late" in key)
    assert "sqs_heartbeat=False" in opted_out
    assert "acks_late=False" in early
