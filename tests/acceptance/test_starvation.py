"""Tasks that let no other thread of their process run: the keeper has its own process."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.process_tasks import MODULE
from tests.acceptance.record import receives
from tests.acceptance.scene import Scene

NewScene = Callable[..., Scene]
POOLS = ["threads", "solo", "gevent", "eventlet", "prefork"]
#: Extended every 1.5 s. A busy machine may stall the keeper for seconds.
TIMEOUT, THRESHOLD = 12, 10.5
TIMEOUTS = 3


def test_a_call_that_blocks_python_for_three_timeouts_loses_no_lease_in_any_pool(
    new_scene: NewScene,
) -> None:
    # Side by side, as each takes its time.
    scenes = {pool: new_scene(attributes={"VisibilityTimeout": str(TIMEOUT)}) for pool in POOLS}
    conf = {"imports": [MODULE], "sqs_heartbeat_threshold": THRESHOLD}
    workers = {
        pool: scene.worker("-c", "2", "-P", pool, conf=conf, wait=False)
        for pool, scene in scenes.items()
    }
    for worker in workers.values():
        worker.wait_for_log("ready.")
    # It receives nothing while a task runs.
    scenes["solo"].let_end("a")
    for scene in scenes.values():
        scene.send("hold_python", "a", TIMEOUTS * TIMEOUT)
        scene.send("work", "b")
    for pool in set(POOLS) - {"solo"}:
        # A poll's answer during the call is read too late, because that process polls.
        workers[pool].wait_for_log("Task tests.acceptance.proj.work[")
        scenes[pool].let_end("a")
    for pool, scene in scenes.items():
        scene.wait_for_notes("end", 2)
        scene.wait_until_empty()
        assert scene.keys("start") == ["a", "b"], pool
        assert len(receives(scene)) == 2, pool
        assert "lease-expired" not in workers[pool].logs(), pool
