"""Missing permissions: the worker logs them once and clearly, and continues."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.record import CHANGE
from tests.acceptance.scene import Scene
from tests.support.faults import deny

NewScene = Callable[..., Scene]


def test_a_worker_that_starts_without_permission_logs_one_line(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.proxy.rule("ListQueues", deny())
    worker = scene.worker("-c", "1", "-Q", "new", wait=False)
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    (line,) = [each for each in log.splitlines() if "sqs-heartbeat doctor` checks" in each]
    assert "sqs-heartbeat: SQS does not list the queues: An error occurred (AccessDenied" in line
    assert "Traceback" not in log
    assert scene.proxy.calls("ReceiveMessage") == []


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
