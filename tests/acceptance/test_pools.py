"""Tasks that let no other thread of their process run, in each pool."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.record import receives
from tests.acceptance.scene import EARLY, SHORT, Scene

POOLS = ["threads", "solo", "gevent", "eventlet", "prefork"]
#: Three timeouts of the queues.
SECONDS = 36


def test_a_call_that_blocks_python_for_three_timeouts_loses_no_lease_in_any_pool(
    new_scene: Callable[..., Scene],
) -> None:
    # Side by side, as each takes its time.
    scenes = {pool: new_scene(attributes=SHORT) for pool in POOLS}
    workers = {
        pool: scene.worker("-c", "2", "-P", pool, conf=EARLY, wait=False)
        for pool, scene in scenes.items()
    }
    for worker in workers.values():
        worker.wait_for_log("ready.")
    # It receives nothing while a task runs.
    scenes["solo"].let_end("a")
    for scene in scenes.values():
        scene.send("hold_python", "a", SECONDS)
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
