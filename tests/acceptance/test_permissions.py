"""Missing permissions: said once and clearly, and the worker goes on."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.scene import Scene
from tests.support.faults import deny

NewScene = Callable[..., Scene]


def test_without_permission_to_extend_the_worker_goes_on_without_leases(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "8"})
    scene.proxy.rule("ChangeMessageVisibilityBatch", deny())
    conf = {"sqs_heartbeat_threshold": 6}
    worker = scene.worker("-c", "2", "-P", "threads", conf=conf)
    for key in ("a", "b"):
        scene.send("work", key, 12)
    scene.wait_for_notes("end", 2)
    for key in ("c", "d"):
        scene.send("work", key)
    scene.wait_until(lambda: {"c", "d"} <= set(scene.keys("end")))
    log = worker.logs()
    assert log.count("permission sqs:ChangeMessageVisibility is missing on queue") == 1
    assert scene.url.rsplit("/", 1)[-1] in log.split("is missing on queue")[1].splitlines()[0]
    assert len(scene.proxy.calls("ChangeMessageVisibilityBatch")) == 1


def test_without_permission_to_delete_the_message_is_kept_and_not_run_again(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    scene.proxy.rule("DeleteMessageBatch", deny())
    worker = scene.worker("-c", "2", "-P", "threads")
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    scene.proxy.wait_for("ChangeMessageVisibilityBatch", count=3)
    assert scene.keys("start") == ["a"]
    assert worker.logs().count("permission sqs:DeleteMessage is missing on queue") == 1
