"""Missing permissions: the worker logs them once and clearly, and continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.acceptance.record import CHANGE
from tests.acceptance.scene import Scene
from tests.support.faults import deny, first

NewScene = Callable[..., Scene]


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ("ListQueues", "SQS does not list the queues: "),
        ("CreateQueue", "queue 'new' can't be used: "),
    ],
)
def test_a_worker_that_starts_without_permission_logs_one_line(
    new_scene: NewScene, operation: str, said: str
) -> None:
    scene = new_scene()
    scene.proxy.rule(operation, deny())
    worker = scene.worker("-c", "1", "-Q", "new", wait=False)
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    (line,) = [each for each in log.splitlines() if "sqs-heartbeat doctor` checks" in each]
    assert f"sqs-heartbeat: {said}An error occurred (AccessDenied" in line
    assert "Traceback" not in log
    assert scene.proxy.calls("ReceiveMessage") == []


def test_a_worker_that_may_not_read_attributes_runs_its_tasks(new_scene: NewScene) -> None:
    """kombu requests them, too, when it declares a queue."""
    scene = new_scene()
    scene.send("work", "a")
    scene.proxy.rule("GetQueueAttributes", deny())
    worker = scene.worker("-c", "1")
    scene.wait_for_notes("end", 1)
    log = worker.logs()
    assert log.count("the permission sqs:GetQueueAttributes is missing") == 1
    assert "visibility timeout 30 s (assumed)" in log


def test_without_permission_to_extend_the_worker_continues_without_leases(
    new_scene: NewScene,
) -> None:
    # A call has four seconds. One without an answer is no refusal: a whole batch may follow it.
    scene = new_scene(attributes={"VisibilityTimeout": "14"})
    scene.proxy.rule(CHANGE, deny())
    conf = {"sqs_heartbeat_threshold": 12}
    worker = scene.worker("-c", "2", "-P", "threads", conf=conf)
    for key in ("a", "b"):
        scene.send("hold", key)
    worker.wait_for_log("lease-expired")
    # Refused, and probed.
    scene.proxy.wait_for(CHANGE, count=3)
    for key in ("a", "b"):
        scene.let_end(key)
    scene.wait_for_notes("end", 2)
    for key in ("c", "d"):
        scene.send("work", key)
    scene.wait_until(lambda: {"c", "d"} <= set(scene.keys("end")))
    log = worker.logs()
    assert log.count("permission sqs:ChangeMessageVisibility is missing on queue") == 1
    assert scene.url.rsplit("/", 1)[-1] in log.split("is missing on queue")[1].splitlines()[0]
    _, *probes = scene.proxy.calls(CHANGE)
    assert probes
    assert all(len(probe.entries) == 1 for probe in probes)


def test_after_one_refused_extension_every_lease_continues(new_scene: NewScene) -> None:
    # A worker full of long tasks: it receives no new message that would try again.
    scene = new_scene(attributes={"VisibilityTimeout": "30"})
    scene.proxy.rule(CHANGE, first(1, deny()))
    conf = {"sqs_heartbeat_threshold": 28, "worker_prefetch_multiplier": 1}
    worker = scene.worker("-c", "4", "-P", "threads", conf=conf)
    keys = ["a", "b", "c", "d"]
    for key in keys:
        scene.send("hold", key)
    scene.wait_for_notes("start", 4)
    worker.wait_for_log("works again")

    def all_extended_twice() -> bool:
        calls = scene.proxy.calls(CHANGE)
        extended = Counter(
            entry["ReceiptHandle"] for call in calls if call.status == 200 for entry in call.entries
        )
        return sum(count >= 2 for count in extended.values()) >= 4

    scene.wait_until(all_extended_twice)
    for key in keys:
        scene.let_end(key)
    scene.wait_until_empty()
    assert scene.keys("start") == keys
    assert "lease-lost" not in worker.logs()


def test_without_permission_to_delete_the_message_is_kept_and_not_run_again(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    scene.proxy.rule("DeleteMessageBatch", deny())
    worker = scene.worker("-c", "2", "-P", "threads")
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    scene.proxy.wait_for(CHANGE, count=3)
    assert scene.keys("start") == ["a"]
    assert worker.logs().count("permission sqs:DeleteMessage is missing on queue") == 1
